#!/usr/bin/env bash
# Run the tests on Python 3.14 without the interpreter lock, and print the row for the second table in docs/pythons.md:
# tests/free_threaded.sh FOLDER
# The first call builds this Python in FOLDER, from Debian's source package, or from the clean source folder that
# NUMPY_ATTENTION_CPYTHON names. This takes about ten minutes, and needs `apt-get build-dep python3` and dpkg-dev.
set -euo pipefail
tree=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$1"
cd "$1"
folder=$PWD

# The source package of Debian's newest Python 3.14, with package lists of its own: the system's lists do not change.
debian_source() {
    local site options
    site=$(apt-get indextargets --format '$(SITE)' 'Created-By: Packages' | grep -v security | sort -u | head -n 1)
    echo "deb-src $site sid main" >sources.list
    mkdir -p lists/partial
    options=(-qq -o "Dir::Etc::SourceList=$folder/sources.list" -o Dir::Etc::SourceParts=-
        -o "Dir::State::Lists=$folder/lists")
    apt-get "${options[@]}" update >&2 && apt-get "${options[@]}" source python3.14 >&2 && echo "$folder"/python3.14-*/
}

if [ ! -x py/bin/python3 ]; then
    source=${NUMPY_ATTENTION_CPYTHON:-$(debian_source)}
    mkdir -p build
    cd build
    "$source/configure" -q --prefix="$folder/py" --disable-gil --enable-optimizations
    make -s -j"$(nproc)" >make.log 2>&1
    make -s install >install.log 2>&1
fi

cd "$tree"
python=$folder/venv/bin/python
"$folder/py/bin/python3" -m venv "$folder/venv"
# safetensors: only a release candidate has a wheel for this Python. fonttools, for matplotlib's PDF files: the compiled
# form turns the interpreter lock on, the form in pure Python does not.
"$python" -m pip install -q --only-binary safetensors --no-binary fonttools '.[test]'
"$python" -c 'import sys, numpy, numpy_attention
print(sys.version, "NumPy", numpy.__version__)
assert not sys._is_gil_enabled(), "an import turned the interpreter lock on"'
"$python" -m pytest -n auto | tee "$folder/default"   # tests/conftest.py checks that the lock stays off
NUMPY_ATTENTION_ROUNDS=1000 "$python" -m pytest -m slow tests/tutor/test_threads.py | tee "$folder/threads"
"$python" - "$folder/default" "$folder/threads" <<'ROW'
import datetime, os, platform, re, sys
import numpy
release = platform.freedesktop_os_release()
system = f"{release['NAME'].removesuffix(' GNU/Linux')} {release.get('VERSION_ID', 'unstable')}, {os.cpu_count()} cores"
default, threads = (re.findall(r"(\d+) passed.* in ([\d.]+)s", open(path).read())[-1] for path in sys.argv[1:])
day = f"{datetime.date.today():%d %B %Y}".removeprefix("0")
print(f"| {platform.python_version()}, free-threaded | {numpy.__version__} | {system} | {day} | {int(default[0]):,} passed "
      f"| {threads[0]} passed, {float(threads[1]) / 60:.1f} minutes |")
ROW
