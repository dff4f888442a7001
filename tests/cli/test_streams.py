"""What becomes of a command whose output nobody reads, that has no room, or is closed: in children, and in a shell."""

import contextlib
import errno
import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.cli.streams import standard_streams
from tests.cli.commands import SIZES, text
from tests.fuzz.processes import Child
from tests.fuzz.test_streams import Streams
from tests.pretrained import tiny

__all__ = ["text"]

pytestmark = pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs bash, and a device that is full")
FULL = "numpy-attention: cannot print: No space left on device"
CLOSED = "numpy-attention: cannot print: standard output is closed"
EXERCISE = str(Path(__file__).parents[2] / "tutorials" / "exercises" / "softmax.py")


def shell(arguments: list[str], streams: str, **environment: str) -> tuple[int, str, str]:
    """The exit code of a command with these streams, its output, and its messages on standard error."""
    command = shlex.join([sys.executable, "-m", "numpy_attention", *arguments])
    script = f"{command} {streams}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, timeout=120, check=False, env={**os.environ, **environment}
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def forked(arguments: list[str], cwd: Path, **streams: Any) -> tuple[int | None, str, str]:
    """The same in a child that is forked with such streams: it takes no time to begin."""
    how = Streams(**streams)
    ended = Child(arguments, cwd, ends=how.ends).outcome(hear=how.hear if how.out == "left" else None)
    return ended.code, ended.out.decode(), ended.said()


def assert_trained_to_the_end(run: Path) -> None:
    with np.load(run / "checkpoint.npz") as checkpoint:
        assert json.loads(checkpoint["meta"].tobytes())["step"] == 8
    assert (run / "loss.png").read_bytes().startswith(b"\x89PNG"), "and nothing was printed into the files"
    assert [json.loads(line)["step"] for line in (run / "log.jsonl").read_text("utf-8").splitlines()] == [1, 4, 8]


@pytest.mark.parametrize(("streams", "message"), [
    ({"out": "left", "hear": 1}, ""),
    ({"out": "full"}, f"{FULL}; the training continues without output\n"),
    ({"out": "closed"}, f"{CLOSED}; the training continues without output\n"),
    ({"err": "full"}, ""),
    ({"stdin": "closed", "out": "closed", "err": "closed"}, ""),
], ids=str)  # fmt: skip
def test_training_completes_when_its_output_is_lost(
    tmp_path: Path, text: Path, streams: dict[str, Any], message: str
) -> None:
    code, _, err = forked(["train", "--text", str(text), "--out", "run", *SIZES], tmp_path, **streams)
    assert (code, err) == (0, message)
    assert_trained_to_the_end(tmp_path / "run")


def test_training_started_by_a_shell_completes_when_its_output_is_lost(tmp_path: Path, text: Path) -> None:
    run = tmp_path / "run"
    code, _, err = shell(["train", "--text", str(text), "--out", str(run), *SIZES], "> /dev/full <&-")
    assert (code, err) == (0, f"{FULL}; the training continues without output\n")
    assert_trained_to_the_end(run)


SAMPLE, CHECK = ["sample", "--tokens", "2000"], ["gradcheck", "softmax", "linear"]


@pytest.mark.parametrize(("state", "message"), [("full", FULL), ("closed", CLOSED)])
@pytest.mark.parametrize(
    "arguments", [SAMPLE, CHECK, ["grade", EXERCISE, "--hint", "1"], ["--help"]], ids=lambda one: one[0]
)
def test_command_without_output_ends_with_one_line(
    tmp_path: Path, arguments: list[str], state: str, message: str
) -> None:
    code, _, err = forked(arguments, tmp_path, out=state)
    assert code == 2
    assert err.splitlines()[-1] == message
    assert "Traceback" not in err


@pytest.mark.parametrize("arguments", [SAMPLE, CHECK], ids=lambda one: one[0])
def test_command_ends_silently_when_its_reader_closes_the_pipe(tmp_path: Path, arguments: list[str]) -> None:
    code, out, err = forked(arguments, tmp_path, out="left", hear=3)
    assert code == 0
    assert len(out) == 3
    assert [line for line in err.splitlines() if not line.startswith("no model is given")] == []


def test_command_in_a_shell_ends_silently_or_with_one_line() -> None:
    code, out, _ = shell(SAMPLE, "| head -c 3")
    assert (code, len(out)) == (0, 3)
    code, _, err = shell(SAMPLE, ">&-")
    assert (code, err.splitlines()[-1]) == (2, CLOSED)


def test_messages_do_not_mix_with_the_output(tmp_path: Path) -> None:
    code, out, _ = forked(["sample", "--tokens", "5", "--prompt", "The "], tmp_path, err="closed")
    assert code == 0
    assert out.startswith("The ")
    assert forked(["nothing"], tmp_path, err="closed") == (2, "", "")


def test_refuses_unreadable_input_in_one_line(tmp_path: Path) -> None:
    path = str(tiny.folder(tiny.TIED)(tmp_path, "talker"))
    for streams, message in (("<&-", "standard input is closed"), ("0> /dev/null", "cannot read the input: ")):
        code, out, err = shell(["chat", path], streams)
        assert (code, out) == (2, "")
        assert err.count("\n") == 1
        assert message in err


def test_characters_that_a_stream_cannot_encode_are_escaped(text: Path, tmp_path: Path) -> None:
    file = tmp_path / "tëxt→.txt"
    text.rename(file)
    code, out, err = forked(["train", "--text", file.name, "--out", "run→", *SIZES], tmp_path, encoding="ascii")
    assert (code, err) == (0, "")
    assert r"t\xebxt\u2192.txt" in out
    nowhere = ["sample", "nowhere→"]
    in_c = shell(nowhere, "", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0")
    for code, _, err in in_c, forked(nowhere, tmp_path, encoding="cp1252"):
        assert code == 2
        assert "nowhere" in err
        assert "Traceback" not in err


def test_unbuffered_output_is_immediate_and_works_with_a_nonblocking_pipe() -> None:
    out, into = os.pipe()
    os.set_blocking(into, False)
    os.write(into, b"." * 65536)  # so that there is no room
    command = [sys.executable, "-u", "-m", "numpy_attention", "sample", "--tokens", "3", "--prompt", "The "]
    with subprocess.Popen(command, stdout=into, stderr=subprocess.DEVNULL) as process:
        os.close(into)
        with os.fdopen(out, "rb") as reader:
            message = reader.read()
        assert process.wait() == 0
    assert message[65536:].startswith(b"The ")


def test_replaced_streams_are_not_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = io.StringIO()  # without a buffer, an encoding or a number
    monkeypatch.setattr(sys, "stdout", theirs)
    with standard_streams():
        assert sys.stdout is theirs
        print("message")
    assert theirs.getvalue() == "message\n"


class _NoReader(io.RawIOBase):
    """A pipe that has lost its reader, on Windows."""

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument")


@pytest.mark.parametrize("windows", [True, False])
def test_reader_that_has_gone_is_recognized_on_windows(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], windows: bool
) -> None:
    pipe = io.TextIOWrapper(io.BufferedWriter(_NoReader()))
    monkeypatch.setattr("numpy_attention.cli.streams.WINDOWS", windows)
    monkeypatch.setattr(sys, "stdout", pipe)
    monkeypatch.setattr(sys, "__stdout__", pipe)
    with standard_streams() as output:
        output.optional = True
        print("message", flush=True)
    message = "numpy-attention: cannot print: Invalid argument; the training continues without output\n"
    assert capsys.readouterr().err == ("" if windows else message)


def on_a_terminal(pieces: list[str]) -> bytes:
    """What a terminal gets of these pieces; it makes \\r\\n of each \\n itself."""
    program = "from numpy_attention.cli.streams import standard_streams\nwith standard_streams():\n"
    ours, theirs = os.openpty()
    program += "".join(f"    print({piece!r}, end='', flush=True)\n" for piece in pieces)
    with subprocess.Popen([sys.executable, "-c", program], stdout=theirs) as process:
        os.close(theirs)
        message = b""
        with contextlib.suppress(OSError):  # so Linux tells its end
            while more := os.read(ours, 1000):
                message += more
    os.close(ours)
    assert process.returncode == 0
    return message


def test_control_characters_are_escaped_on_a_terminal_and_unchanged_in_a_pipe() -> None:
    odd = "a\x1b]0;t\x07\tb\x7f\x9b2J\b é→\n"
    assert on_a_terminal([odd]).decode() == "a\\x1b]0;t\\x07\tb\\x7f\\x9b2J\\x08 é→\r\n"
    program = "from numpy_attention.cli.streams import standard_streams\n"
    program += f"with standard_streams(): print({odd!r}, end='')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout == odd.encode()


def test_dos_line_endings_are_line_endings_and_other_carriage_returns_are_shown() -> None:
    pieces = ["one\r\ntwo\r", "\n", "three\r", "four", "\r", "\r", "\n"]
    assert on_a_terminal(pieces) == b"one\r\ntwo\r\nthree\\rfour\\r\r\n"
