"""`chat`: questions from a pipe or a person, answers as they come."""

import io
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app import chat
from numpy_attention.app.main import main
from numpy_attention.pretrained import conversation
from numpy_attention.pretrained.chat import Chat
from numpy_attention.pretrained.conversation import Conversation
from numpy_attention.pretrained.load import load_pretrained
from tests.app.commands import refused, run_directory, text
from tests.pretrained import tiny

__all__ = ["run_directory", "text"]

TOKENS = 6


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    longer = tiny.TIED | {"max_position_embeddings": 211}
    return tiny.folder(longer)(tmp_path_factory.mktemp("chat"), "talker")


Talk = Callable[..., tuple[str, str]]


@pytest.fixture
def talk(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Talk:
    def talk(typed: str, *options: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["chat", str(path), "--tokens", str(TOKENS), *options]) == 0
        return capsys.readouterr()

    return talk


def answers(path: Path, *questions: str, system: str | None = None, **sampling: Any) -> str:
    """What the model says to these questions, as it stands on the screen."""
    model, tokenizer = load_pretrained(path)
    one = Conversation(model, Chat(tokenizer, system), **({"temperature": 0.0} | sampling))
    return "".join(tokenizer.decode(list(one.answer(question, TOKENS))) + "\n" for question in questions)


def test_pipe_gets_one_answer_for_each_line_and_nothing_more(path: Path, talk: Talk) -> None:
    out, err = talk("the user\n\n  or the other \n")
    assert out == answers(path, "the user", "or the other")
    assert out != answers(path, "the user") + answers(path, "or the other"), "the second remembers the first"
    lines = err.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert f"{TOKENS} tokens, " in line
        assert " tokens/s, the first after " in line
        assert " of 211 tokens of context" in line
    assert talk("") == ("", "")


def test_no_speed_is_printed_when_the_clock_does_not_advance(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "perf_counter", lambda: 5.0)
    assert f"{TOKENS} tokens, 0.0 tokens/s, the first after 0.0 s" in talk("the user\n")[1]


def test_reset_restarts_the_conversation_and_the_seed(path: Path, talk: Talk) -> None:
    out, err = talk("the user\nor\n/reset\nthe user\n")
    assert out == answers(path, "the user", "or") + answers(path, "the user")
    assert "conversation forgotten" in err.splitlines()
    out, _ = talk("the user\n/reset\nthe user\n", "--temperature", "2", "--seed", "5", "--top-k", "40")
    drawn = answers(path, "the user", temperature=2.0, rng=np.random.default_rng(5), top_k=40)
    assert out == drawn + drawn != answers(path, "the user") * 2


def test_system_message_can_be_changed_or_empty(path: Path, talk: Talk) -> None:
    message = {name: talk("the user\n", *options)[0] for name, options in
            (("own", []), ("other", ["--system", "12 12"]), ("none", ["--system", ""]))}  # fmt: skip
    assert message["other"] == answers(path, "the user", system="12 12")
    assert message["none"] == answers(path, "the user", system="")
    assert len(set(message.values())) == 3


def test_commands_are_not_sent_to_the_model(path: Path, talk: Talk) -> None:
    out, err = talk("/help\n/rest\n/the user\n/exit\nor\n")
    assert out == answers(path, "/the user"), "what is no command is a question"
    assert err.splitlines()[0] == chat.COMMANDS
    assert "there is no command /rest; /help" in err.splitlines()[1]
    assert len(err.splitlines()) == 3, "/exit ends it"


def test_ctrl_c_stops_the_answer_but_not_the_program(path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, calls = conversation.stream, []

    def interrupted(*arguments: Any, **options: Any) -> Iterator[int]:
        calls.append(1)
        for count, i in enumerate(stream(*arguments, **options)):
            if len(calls) == 1 and count == 2:
                raise KeyboardInterrupt
            yield i

    monkeypatch.setattr(conversation, "stream", interrupted)
    out, err = talk("the user\nor\n")
    monkeypatch.setattr(conversation, "stream", stream)
    model, tokenizer = load_pretrained(path)
    one = Conversation(model, Chat(tokenizer), temperature=0.0)
    heard = list(one.answer("the user", 2))
    certain = tokenizer.decode(heard).rstrip("\ufffd")
    assert out == certain + "\n" + tokenizer.decode(list(one.answer("or", TOKENS))) + "\n"
    first, second = err.splitlines()
    assert first.startswith("stopped; 2 tokens")
    assert "broken" not in second


def test_words_are_printed_as_they_are_drawn(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrived, seen = io.BytesIO(), []
    stream = conversation.stream

    def noted(*arguments: Any, **options: Any) -> Iterator[int]:
        for i in stream(*arguments, **options):
            seen.append(arrived.getvalue().decode())
            yield i

    monkeypatch.setattr(conversation, "stream", noted)
    monkeypatch.setattr(sys, "stdin", io.StringIO("the user\n"))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(arrived, encoding="utf-8"))  # which waits for a flush
    assert main(["chat", str(path), "--tokens", str(TOKENS)]) == 0
    whole = arrived.getvalue().decode()
    assert len(set(seen)) > 2
    for n, so_far in enumerate(seen):
        assert whole.startswith(so_far)
        assert len(so_far) <= n
    monkeypatch.setattr(conversation, "stream", stream)
    assert whole == answers(path, "the user")


class Interrupting(io.StringIO):
    """A person who presses Ctrl-C where the lines end."""

    def readline(self, *size: Any) -> str:
        line = super().readline(*size)
        if not line:
            raise KeyboardInterrupt
        return line


def test_ctrl_c_and_ctrl_d_at_the_prompt_quit(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for kind in (Interrupting, io.StringIO):
        monkeypatch.setattr(sys, "stdin", kind("/reset\n"))
        assert main(["chat", str(path)]) == 0
        assert capsys.readouterr() == ("", "conversation forgotten\n")


def test_terminal_shows_a_prompt_and_the_commands(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("/reset\n"))
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert main(["chat", str(path)]) == 0
    out, err = capsys.readouterr()
    assert out == "> > \n"
    assert chat.COMMANDS in err
    assert err.startswith("\033[2m"), "dimmed"


def test_shortened_answer_gives_the_reason(talk: Talk) -> None:
    assert talk("the user\n", "--tokens", "3")[1].startswith("--tokens allows longer answers; 3 tokens, ")
    assert talk("the user\n", "--tokens", "1")[1].startswith(
        "--tokens allows longer answers; 1 token, the first after ")
    full = talk("the user\nor\n/reset\nor\n", "--tokens", "999")[1].splitlines()
    assert full[0].startswith("the context is full, /reset forgets the conversation; ")
    assert full[1].startswith("211 tokens and 19 new ones ")
    assert full[2] == "conversation forgotten"
    assert full[3].startswith("the context is full, ")


def test_invalid_character_is_refused_and_the_conversation_continues(path: Path, talk: Talk) -> None:
    out, err = talk("the \udc80 user\nor\n")
    assert out == answers(path, "or")
    assert "half a surrogate pair" in err.splitlines()[0]


def test_refuses_input_that_is_not_text_in_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\xff\xfe\n"), encoding="utf-8"))
    assert "is not UTF-8 text" in refused(capsys, "chat", path)
    without_mark = io.TextIOWrapper(io.BytesIO("the user\n".encode("utf-16-le")), encoding="utf-16")
    monkeypatch.setattr(sys, "stdin", without_mark)
    assert "is not UTF-16 text; convert it with iconv -t UTF-16" in refused(capsys, "chat", path)


def test_refuses_closed_input_in_one_line(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert "standard input is closed" in refused(capsys, "chat", path)


def test_refuses_models_that_cannot_chat_in_one_line(
    path: Path, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "python -m numpy_attention fetch smollm2" in refused(capsys, "chat", "smollm2")
    assert "not to chat; use sample" in refused(capsys, "chat", run_directory)
    assert "only a GPT can talk" in refused(capsys, "chat", tiny.write(tmp_path, "bert"))
    assert "--seed must be at least 0" in refused(capsys, "chat", path, "--seed", "-1")
    assert "--tokens must be from 0" in refused(capsys, "chat", "nowhere", "--tokens", "-1")
    (path.parent / "plain").mkdir()
    for file in path.iterdir():
        if file.name != "tokenizer_config.json":
            (path.parent / "plain" / file.name).write_bytes(file.read_bytes())
    assert "use sample" in refused(capsys, "chat", path.parent / "plain")


def test_refuses_an_endless_line_after_a_million_characters(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Endless(io.StringIO):
        def readline(self, size: int | None = -1, /) -> str:
            assert size is not None
            assert 0 < size <= 2**20, "an endless line fills the memory"
            return "x" * size

    monkeypatch.setattr(sys, "stdin", Endless())
    assert "a line of the input is longer than 1,048,576 characters" in refused(capsys, "chat", path)
