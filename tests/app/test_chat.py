"""`chat`: questions from a pipe or a person, answers as they come."""

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.words import COMMANDS
from numpy_attention.pretrained import c35b_conversation as conversation
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.c35b_conversation import Conversation
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER
from tests.app.commands import refused
from tests.pretrained import tiny

TOKENS = 6
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tiny.TIED | {"max_position_embeddings": 131})(tmp_path_factory.mktemp("chat"), "talker")


Talk = Callable[..., tuple[str, str]]


@pytest.fixture
def talk(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> Talk:
    def talk(typed: str, *options: str) -> tuple[str, str]:
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        assert main(["chat", str(path), "--tokens", str(TOKENS), *options]) == 0
        return capsys.readouterr()

    return talk


def answers(path: Path, *questions: str, system: str | None = None, **sampling: Any) -> str:
    """The model's answers to these questions, as they appear on the screen."""
    model, tokenizer = load_pretrained(path)
    one = Conversation(model, Chat(tokenizer, system), **({"temperature": 0.0} | sampling))
    return "".join(tokenizer.decode(list(one.answer(question, TOKENS))) + "\n" for question in questions)


def test_pipe_gets_one_answer_for_each_line_and_nothing_more(path: Path, talk: Talk) -> None:
    out, err = talk("the user\n\n  or the other \n")
    assert out == answers(path, "the user", "or the other")
    assert out != answers(path, "the user") + answers(path, "or the other"), "the second remembers the first"
    commands, *used = err.splitlines()
    assert commands == COMMANDS
    assert len(used) == 2
    assert all(line.endswith(" of 131 tokens of context") for line in used)
    assert talk("")[0] == ""


def test_reset_restarts_the_conversation_and_the_seed(path: Path, talk: Talk) -> None:
    out, _ = talk("the user\n/reset\nthe user\n", "--temperature", "2", "--seed", "5", "--top-k", "40")
    drawn = answers(path, "the user", temperature=2.0, rng=np.random.default_rng(5), top_k=40)
    assert out == drawn + drawn != answers(path, "the user") * 2


def test_system_message_can_be_changed_or_empty(path: Path, talk: Talk) -> None:
    own, other, none = (talk("the user\n", *options)[0] for options in ([], ["--system", "12 12"], ["--system", ""]))
    assert other == answers(path, "the user", system="12 12")
    assert none == answers(path, "the user", system="")
    assert len({own, other, none}) == 3


def test_commands_are_not_sent_to_the_model(path: Path, talk: Talk) -> None:
    out, err = talk("/help\n/rest\nthe user\n/exit\nor\n")
    assert out == answers(path, "the user"), "nothing after /exit"
    assert err.splitlines()[:3] == [COMMANDS] * 3


def test_ctrl_c_stops_the_answer_but_not_the_program(path: Path, talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, calls = conversation.stream, []

    def interrupted(*arguments: Any, **options: Any) -> Iterator[int]:
        calls.append(1)
        for count, i in enumerate(stream(*arguments, **options)):
            if len(calls) == 1 and count == 2:
                raise KeyboardInterrupt
            yield i

    monkeypatch.setattr(conversation, "stream", interrupted)
    out, _ = talk("the user\nor\n")
    monkeypatch.setattr(conversation, "stream", stream)
    model, tokenizer = load_pretrained(path)
    one = Conversation(model, Chat(tokenizer), temperature=0.0)
    certain = tokenizer.decode(list(one.answer("the user", 2))).rstrip("\ufffd")
    assert out == certain + "\n" + tokenizer.decode(list(one.answer("or", TOKENS))) + "\n"


def test_question_that_does_not_fit_into_the_context_is_refused_until_reset(talk: Talk) -> None:
    _, err = talk("the user\nor\n/reset\nor\n", "--tokens", "999")
    assert "131 tokens and 19 new ones are too many" in err
    assert err.splitlines()[-1] == "131 of 131 tokens of context"


def test_refuses_models_that_cannot_chat_in_one_line(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "-m numpy_attention fetch smollm2" in refused(capsys, "chat", "smollm2")
    assert "not to chat; use sample" in refused(capsys, "chat", FOLDER)
    assert "only a GPT can talk" in refused(capsys, "chat", tiny.write(tmp_path, "bert"))
    assert "--seed must be at least 0" in refused(capsys, "chat", path, "--seed", "-1")
    (path.parent / "plain").mkdir()
    for file in path.iterdir():
        if file.name != "tokenizer_config.json":
            (path.parent / "plain" / file.name).write_bytes(file.read_bytes())
    assert "use sample" in refused(capsys, "chat", path.parent / "plain")
