"""`python -m numpy_attention`: a command is needed, and one that there is."""

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from numpy_attention.app.main import main
from numpy_attention.errors import shell_path
from numpy_attention.pretrained.shipped import NO_MODEL_NAMED
from tests.app.commands import refused, text
from tests.pretrained import tiny

__all__ = ["text"]


def test_refuses_missing_and_unknown_commands(capsys):
    assert "required: COMMAND" in refused(capsys)
    assert "invalid choice: 'trian'" in refused(capsys, "trian")


def test_error_is_one_line_of_bounded_length_with_beginning_and_end(capsys):
    err = refused(capsys, "grade", "x" * 200 + ".py", "--exercise", "y" * 5000)
    assert len(err) < 520
    err = refused(capsys, "t" * 5000)
    assert len(err) < 520
    assert "invalid choice: 'ttt" in err
    assert err.replace("'", "").endswith("gradcheck, grade)\n")  # 3.12 writes no quotes


@pytest.mark.parametrize("arguments", [
    ["train", "--out", "a\0b"], ["train", "--config", "\0"], ["train", "--text", "a\0b"], ["train", "--resume", "a\0b"],
    ["sample", "a\0b"], ["fetch", "a\0b"], ["chat", "a\0b"], ["embed", "a\0b", "c", "--query", "d"],
    ["embed", "minilm", "a\0b", "--query", "c"], ["attend", "--out", "a\0b.png"], ["gradcheck", "a\0b"],
    ["grade", "a\0b"], ["grade", "--solution", "a\0b"],
], ids=" ".join)
def test_refuses_null_byte_in_an_argument(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "contains a null byte; no file name can contain one" in refused(capsys, *arguments)


@pytest.mark.parametrize("arguments", [
    ["train", "--text", "NAME"], ["train", "--config", "NAME"], ["sample", "NAME"], ["chat", "NAME"],
    ["embed", "minilm", "NAME", "--query", "a"], ["attend", "NAME", "--text", "a"], ["attend", "--out", "NAME"],
    ["grade", "NAME"], ["grade", "--all", "NAME"], ["grade", "--solution", "softmax", "NAME"],
], ids=" ".join)
@pytest.mark.parametrize("name", ["x" * 300, "", "\udcff", "."], ids=["long", "empty", "surrogate", "folder"])
def test_refuses_impossible_file_name_in_one_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = [argument.replace("NAME", name) for argument in arguments]
    if arguments[:2] in (["grade", "--all"], ["grade", "--solution"]) and name == ".":
        return  # a folder, in which answers are looked for
    assert main(arguments) == 2
    message = [line for line in capfd.readouterr().err.splitlines() if line != NO_MODEL_NAMED]
    assert len(message) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [
    ["train", "--out", "new"], ["sample"], ["fetch", "minilm"], ["chat", "smollm2"], ["attend"], ["gradcheck"],
    ["embed", "minilm", "a", "--query", "b"], ["grade", "softmax.py"],
], ids=lambda arguments: arguments[0])
def test_interrupt_ends_a_command_with_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(f"numpy_attention.app.{arguments[0]}.run", interrupted)
    assert main(arguments) == 130
    assert capsys.readouterr() == ("", "numpy-attention: interrupted\n")


def test_second_interrupt_during_the_message_gives_no_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("numpy_attention.app.attend.run", interrupted)
    monkeypatch.setattr("builtins.print", interrupted)
    assert main(["attend"]) == 130


def test_refuses_value_that_argparse_would_drop(capsys: pytest.CaptureFixture[str]) -> None:
    assert "argument --time-limit: expected one argument" in refused(capsys, "grade", "softmax.py", "--time-limit=--")


def test_printed_paths_are_quoted_for_the_shell() -> None:
    for name in ("run", "my run", "it's", "a;b", "$HOME", "→"):
        assert shlex.split(shell_path(Path(name))) == [name]
    assert shell_path("-my run") == "'./-my run'"
    assert shell_path("run") == "run"
    assert shell_path("caf\udce9") == "'caf\udce9'"


def test_error_for_invalid_character_names_its_option(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, text: Path
) -> None:
    half, bert = "\udcff", tiny.write(tmp_path, "bert")
    assert ": --query: the text holds '\\udcff'" in refused(capsys, "embed", bert, text, "--query", half)
    assert ": --text: the text holds '\\udcff'" in refused(capsys, "attend", bert, "--text", half)
    assert main(["sample", "--prompt", half]) == 2
    assert "--prompt: characters unknown to the model" in capsys.readouterr().err
    talker = tiny.folder(tiny.TIED)(tmp_path, "talker")
    assert ": --system: the text holds '\\udcff'" in refused(capsys, "chat", talker, "--system", half)


def test_control_characters_in_a_name_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert "called \\x1b[31m;" in refused(capsys, "sample", "\x1b[31m")


@pytest.mark.skipif(os.name == "nt", reason="Ctrl-C as a signal of Unix")
@pytest.mark.parametrize("module", ["numpy_attention.layers", "numpy_attention.app.source"])
def test_interrupt_while_the_program_is_imported_gives_no_traceback(module: str) -> None:
    program = "import os, signal as s, sys; s.signal(2, s.SIG_DFL); os.execv(sys.argv[1], sys.argv[1:])"
    command = [sys.executable, "-c", program, sys.executable, "-X", "importtime", "-m", "numpy_attention"]
    lines = []
    with subprocess.Popen([*command, "sample", "nowhere"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            lines.append(line)
            if line.endswith(f" {module}\n"):
                process.send_signal(signal.SIGINT)
        assert process.wait() == -signal.SIGINT
    assert not [line for line in lines if "Traceback" in line or "KeyboardInterrupt" in line]


def test_importing_the_package_changes_no_signal() -> None:
    program = "import signal as s; before = s.getsignal(2); import numpy_attention; print(s.getsignal(2) == before)"
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "True\n"


@pytest.mark.parametrize(("argv", "given", "expected"), [("-m", None, "20"), ("-m", "7", "7"), ("a.py", None, "None")])
def test_the_command_line_sets_the_time_until_blas_sleeps_before_numpy_is_loaded(argv, given, expected) -> None:
    program = (
        "import os, sys\nclass Finder:\n    def find_spec(self, name, *_):\n        if name == 'numpy':\n"
        "            print(os.environ.get('OPENBLAS_THREAD_TIMEOUT'))\n"
        f"sys.meta_path.insert(0, Finder())\nsys.argv = ['{argv}']\nimport numpy_attention"
    )
    environment = os.environ.copy()
    environment.pop("OPENBLAS_THREAD_TIMEOUT", None)
    environment |= {} if given is None else {"OPENBLAS_THREAD_TIMEOUT": given}
    assert subprocess.check_output([sys.executable, "-c", program], text=True, env=environment).split() == [expected]
