#!/usr/bin/env bash
# Run the README's test command in a new copy of the source, and print the row for the table in docs/pythons.md:
#   tests/other_python.sh PYTHON   with this Python, for example ~/.pyenv/versions/3.12.1/bin/python
#   tests/other_python.sh          with the newest Python of Debian (unstable), as root: Debian is unpacked into a
#                                  temporary folder (debootstrap), and the tests run with this folder as their root
# A failed test ends the script without a row.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root" "$root.log"' EXIT

# copy FOLDER: the files that git tracks, and the script `run` that tests them with the Python given as its argument.
copy() {
    mkdir "$1"
    git -C "$tree" ls-files -z | tar -C "$tree" --null --files-from - -c | tar -x -C "$1"
    cat >"$1/run" <<'RUN'
set -euo pipefail
cd "$(dirname "$0")"
"$1" -m venv .venv
.venv/bin/pip install -q ".[test]"
.venv/bin/python -m pytest -q -n auto | tee result
.venv/bin/python - <<'ROW'
import datetime, platform, re
import numpy
release = platform.freedesktop_os_release()
system = f"{release['NAME'].removesuffix(' GNU/Linux')} {release.get('VERSION_ID', 'unstable')}"
passed = int(re.findall(r"(\d+) passed", open("result").read())[-1])
day = f"{datetime.date.today():%d %B %Y}".removeprefix("0")
print(f"| {platform.python_version()} | {numpy.__version__} | {system} | {day} | {passed:,} passed |")
ROW
RUN
}

if [ $# -gt 0 ]; then
    copy "$root/tree"
    bash "$root/tree/run" "$("$1" -c 'import sys; print(sys.executable)')"
    exit
fi

command -v debootstrap >/dev/null || { apt-get -q update && apt-get -q install -y debootstrap; }
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
# with separate mounts: nothing stays mounted below the folder when it is removed
unshare --mount --pid --fork --kill-child --mount-proc debootstrap --variant=minbase \
    --include=python3,python3-venv,ca-certificates sid "$root" "$site" >"$root.log" 2>&1 || { tail -n 5 "$root.log"; exit 1; }
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
copy "$root/tree"
unshare --mount --pid --fork --kill-child env -u TMPDIR -u PIP_FIND_LINKS PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 bash -ec 'mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; chroot "$0" bash /tree/run python3' "$root"
