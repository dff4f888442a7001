"""`python -m numpy_attention`: errors are one line, and the command line works as a process."""

import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.app.main import main
from numpy_attention.errors import command, install
from numpy_attention.pretrained.fetch import SOURCES
from tests.app.commands import refused

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, "-m", "numpy_attention"]


def test_command_line_runs_as_a_process(tmp_path: Path) -> None:
    done = subprocess.run([*COMMAND, "sample", "--tokens", "20"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("The ")
    assert len(done.stdout) == len("The ") + 20 + 1


def test_printed_command_starts_with_the_program_that_the_reader_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "my env" / "bin"
    monkeypatch.delenv("UV_RUN_RECURSION_DEPTH", raising=False)
    monkeypatch.setattr(sys, "argv", ["/book/numpy_attention/__main__.py", "train"])
    monkeypatch.setattr(sys, "executable", str(programs / "python3"))
    monkeypatch.setattr(sys, "base_prefix", sys.prefix)
    assert command("train") == "python3 -m numpy_attention train"
    monkeypatch.setattr(sys, "prefix", str(programs.parent))
    assert command("train") == f"'{programs / 'python3'}' -m numpy_attention train"
    monkeypatch.chdir(tmp_path)
    assert command("train") == "'my env/bin/python3' -m numpy_attention train"
    assert install("tqdm") == "'my env/bin/python3' -m pip install tqdm"
    monkeypatch.setattr(sys, "argv", [str(programs / "numpy-attention"), "train"])
    assert command("train") == "'my env/bin/numpy-attention' train"
    monkeypatch.setattr("shutil.which", lambda name: str(programs / name))  # the environment is active
    assert command("train") == "numpy-attention train"
    monkeypatch.setenv("UV_RUN_RECURSION_DEPTH", "1")
    assert command("train") == "uv run numpy-attention train"
    assert install("tqdm") == "uv pip install tqdm"
    monkeypatch.setattr(sys, "argv", ["/book/numpy_attention/__main__.py", "train"])
    assert command("train") == "uv run python -m numpy_attention train"


@pytest.mark.parametrize("started", ["-mnumpy_attention", "tutorials/one_page_gpt.py"])
def test_without_numpy_one_line_says_how_to_install_it(started: str) -> None:
    command = [sys.executable, "-E", "-S", started]  # -S: without installed packages
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert "pip install numpy" in done.stderr


def test_refuses_missing_and_unknown_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert "required: COMMAND" in refused(capsys)
    assert "invalid choice: 'trian'" in refused(capsys, "trian")


def test_help_lists_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    assert {"train", "sample", "fetch", "chat", "embed", "attend", "gradcheck", "grade"} <= set(listed)


@pytest.mark.parametrize(("error", "code", "message"), [
    (KeyboardInterrupt(), 130, "interrupted"),
    (MemoryError(), 2, "out of memory: give smaller sizes"),
    (MemoryError("Unable to allocate 8 TiB"), 2, "out of memory: Unable to allocate 8 TiB"),
    (PermissionError(13, "Permission denied", "a.txt"), 2, "cannot read or write a.txt: Permission denied"),
], ids=["Ctrl-C", "memory", "memory for an array", "file"])
def test_error_in_a_command_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, message: str
) -> None:
    def failing(_: object) -> int:
        raise error

    monkeypatch.setattr("numpy_attention.app.reading.attend", failing)
    assert main(["attend"]) == code
    assert capsys.readouterr() == ("", f"numpy-attention: {message}\n")


@pytest.mark.slow
def test_reader_that_closes_the_pipe_ends_the_command_silently() -> None:
    command = [sys.executable, "-m", "numpy_attention", "sample", "--tokens", "400"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        said = process.stderr.read().decode()
    assert "Traceback" not in said
    assert "Error" not in said
    assert process.returncode == 1


def test_fetch_prints_the_path_and_the_license(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    path = tmp_path / SOURCES["minilm"].model
    path.mkdir()
    assert main(["fetch", "minilm"]) == 0
    assert capsys.readouterr() == (f"{path}: license Apache-2.0\n", "")
