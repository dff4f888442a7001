#!/usr/bin/env bash
# Run the README's test command on the newest Python of Debian (unstable): tests/other_python.sh, as root, from a checkout.
# Debian is unpacked into a temporary folder (debootstrap), and the tests run with this folder as their root.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

command -v debootstrap >/dev/null || { apt-get -q update && apt-get -q install -y debootstrap; }
site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
# with separate mounts: nothing stays mounted below the folder when it is removed
unshare --mount --pid --fork --kill-child --mount-proc debootstrap --variant=minbase \
    --include=python3,python3-venv,ca-certificates sid "$root" "$site" >"$root.log" 2>&1 || { tail -n 5 "$root.log"; exit 1; }
cp /etc/resolv.conf /etc/hosts "$root/etc/"
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
mkdir "$root/tree"
git -C "$tree" ls-files -z | tar -C "$tree" --null --files-from - -c | tar -x -C "$root/tree"
unshare --mount --pid --fork --kill-child env -u TMPDIR -u PIP_FIND_LINKS PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
    LANG=C.UTF-8 bash -ec 'mount --rbind /dev "$0/dev"; mount -t proc proc "$0/proc"; chroot "$0" bash -ec "
        python3 --version; cd /tree; python3 -m venv .venv; .venv/bin/pip install -q \".[test]\"
        .venv/bin/python -m pytest -q -n auto"' "$root"
