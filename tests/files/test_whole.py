"""Atomic writes: a file is complete or absent, no link redirects a write, and only regular files are read."""

import os
import re
import tempfile
from contextlib import nullcontext
from pathlib import Path

import pytest

from numpy_attention import files
from numpy_attention.errors import InputError
from numpy_attention.files import (
    atomic_write,
    exists,
    load_arrays,
    open_regular,
    sweep,
    temporary_folder,
    writing,
)

OWN = re.compile(r"checkpoint\.npz")


def test_atomic_write_gives_the_complete_new_file_or_keeps_the_old_one(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with atomic_write(path) as temporary:
        temporary.write_text("new")
        assert path.read_text("utf-8") == "old"
        assert temporary.suffix == path.suffix
    assert path.read_text("utf-8") == "new"

    def interrupted():
        with atomic_write(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text("utf-8") == "new"
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_atomic_write_without_a_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("old")
    with pytest.raises(FileNotFoundError), atomic_write(path):
        pass
    assert path.read_text("utf-8") == "old"


@pytest.mark.parametrize("refusals", [1, 3, 4])
def test_atomic_write_waits_for_a_reader_that_prevents_the_rename_as_on_windows(tmp_path, monkeypatch, refusals):
    path, replace, pauses = tmp_path / "notes.txt", os.replace, []

    def refused(*paths):
        if len(pauses) < refusals:
            raise PermissionError(13, "Access is denied", "notes.txt")
        return replace(*paths)

    path.write_text("old")
    monkeypatch.setattr(os, "replace", refused)
    monkeypatch.setattr("time.sleep", pauses.append)
    refusal = pytest.raises(InputError, match=r"^cannot write to notes: Access is denied$")
    with refusal if refusals == 4 else nullcontext(), writing("notes"), atomic_write(path) as temporary:
        temporary.write_text("new")
    assert path.read_text("utf-8") == ("old" if refusals == 4 else "new")
    assert sum(pauses) <= 1.0
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_sweep_removes_only_unfinished_files_of_killed_processes(tmp_path):
    kept = {"checkpoint.npz", "log.jsonl", "notes.tmp", "draft.txt.1.tmp", "data.csv.2023.tmp.csv"}
    for name in kept:
        (tmp_path / name).write_text("")
    folders = {".0123456789abcdef.tmp": "checkpoint.npz", ".1123456789abcdef.tmp": "thesis.txt"}
    for folder, name in folders.items():
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text("half")
    (tmp_path / ".2123456789abcdef.tmp").mkdir()  # the process was killed before it made a file
    (tmp_path / ".3123456789abcdef.tmp").write_text("not a directory")
    sweep(tmp_path, OWN)
    assert set(os.listdir(tmp_path)) == kept | {".1123456789abcdef.tmp", ".3123456789abcdef.tmp"}


def test_atomic_write_follows_no_planted_link(tmp_path, monkeypatch):
    precious = tmp_path / "precious.txt"
    precious.write_text("keep me")
    for name in (f"log.jsonl.{os.getpid()}.tmp.jsonl", "log.jsonl.tmp"):  # names that another user could guess
        (tmp_path / name).symlink_to(precious)
    with atomic_write(tmp_path / "log.jsonl") as temporary:
        temporary.write_text("new")
    monkeypatch.setattr(os, "urandom", bytes)
    guessed = tmp_path / f".{'0' * 16}.tmp"
    for planted in (precious, tmp_path):  # a correct guess only makes the write fail
        guessed.symlink_to(planted)
        with pytest.raises(FileExistsError), atomic_write(tmp_path / "log.jsonl") as temporary:
            temporary.write_text("newer")
        guessed.unlink()
    assert precious.read_text("utf-8") == "keep me"
    assert (tmp_path / "log.jsonl").read_text("utf-8") == "new"


def test_unfinished_files_have_different_names_and_default_modes(tmp_path):
    seen = set()
    for _ in range(5):
        with atomic_write(tmp_path / "a.txt") as temporary:
            seen.add(temporary)
            temporary.write_text("a")
    assert len(seen) == 5
    (tmp_path / "plain.txt").write_text("a")
    assert (tmp_path / "a.txt").stat().st_mode == (tmp_path / "plain.txt").stat().st_mode


def test_atomic_write_accepts_the_longest_name_of_the_file_system(tmp_path):
    longest = tmp_path / ("n" * 251 + ".txt")
    with atomic_write(longest) as temporary:
        temporary.write_text("a")
    assert longest.read_text("utf-8") == "a"
    with pytest.raises(OSError, match="too long"), atomic_write(tmp_path / ("n" * 300)) as temporary:
        temporary.write_text("a")
    assert os.listdir(tmp_path) == [longest.name]


def test_sweep_follows_no_link(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "checkpoint.npz").write_text("")
    (tmp_path / ".0123456789abcdef.tmp").symlink_to(tmp_path / "folder")
    sweep(tmp_path, OWN)
    assert (tmp_path / "folder" / "checkpoint.npz").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist only on Unix")
def test_open_regular_refuses_pipes_devices_and_directories_at_once(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", "/dev/tty", "/dev/stdin/x"):
        with pytest.raises(OSError, match=r"not a regular file|No such device|Not a directory|Permission"):
            open_regular(path)
        with pytest.raises(InputError, match="cannot read"):
            load_arrays(path)
    with pytest.raises(IsADirectoryError):
        open_regular(tmp_path)
    for name in ("a\0b", "a\udfff\ud800"):
        with pytest.raises(OSError, match="no file can have this name"):
            open_regular(name)
    (tmp_path / "a").write_text("text")
    (tmp_path / "link").symlink_to("a")
    with open_regular(tmp_path / "link") as file:
        assert file.read() == b"text"


def test_writing_turns_only_os_errors_into_one_line(tmp_path):
    with pytest.raises(InputError, match=r"^cannot write to here: File name too long$"), writing("here"):
        (tmp_path / ("n" * 300)).mkdir()
    with pytest.raises(KeyError), writing("here"):
        raise KeyError


def test_exists_reports_a_path_that_the_system_cannot_check(tmp_path):
    assert exists(tmp_path)
    assert not exists(tmp_path / "none")
    assert not exists(tmp_path / "a\0b")
    with pytest.raises(InputError, match=r"cannot read n+: File name too long"):
        exists(Path("n" * 5000))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist only on Unix")
def test_atomic_write_replaces_no_pipe_or_directory(tmp_path):
    pipe = tmp_path / "pipe.npz"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(OSError, match="not a regular file"), atomic_write(path):
            raise AssertionError
    assert pipe.is_fifo()


def test_error_without_a_temporary_folder_names_tmpdir(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with temporary_folder() as folder:
        assert Path(folder).is_dir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "gone"))
    with pytest.raises(InputError, match=r"^cannot make a temporary folder: No such file.*; set TMPDIR to a folder"):
        temporary_folder()


def test_error_of_atomic_write_names_the_path_of_the_caller(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for path, kind in (("no/model.npz", FileNotFoundError), (".", OSError)):
        with pytest.raises(kind) as caught, atomic_write(path):
            raise AssertionError
        assert caught.value.filename == path
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("old", "new"), [("there", exists), ("whole_or_not_at_all", atomic_write)])
def test_old_name_warns_and_returns_the_new_function(old, new):
    with pytest.warns(DeprecationWarning, match=f"{old} is now called {new.__name__}"):
        assert getattr(files, old) is new
