#!/usr/bin/env bash
# Build the site, treat every warning as an error, and check the built site: docs/build_check.sh [PYTHON]
# PYTHON (default python3) belongs to a virtual environment; missing packages are installed into it.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${1:-python3}

"$python" -m pip install -q '.[docs]'
timeout 1500 "$python" -m sphinx -q -W --keep-going docs build/site
"$python" tests/docs/check_site.py build/site

# The rest needs a browser. Root can install Debian's.
if ! command -v chromium >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    { apt-get update -qq && apt-get install -y -qq chromium; } >/dev/null || true
fi
if ! command -v chromium >/dev/null; then
    echo "chromium is not installed and could not be installed: the site was not opened in a browser"
    exit 0
fi
"$python" -m pip install -q 'playwright>=1.45'   # controls the installed browser and downloads no other browser
timeout 900 "$python" tests/docs/check_site.py build/site --browser --chromium "$(command -v chromium)"
"$python" tests/docs/check_fingers.py build/site --chromium "$(command -v chromium)"
