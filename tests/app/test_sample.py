"""`sample`: a prompt goes on, repeatably, and each piece is printed as soon as it is certain."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from numpy_attention.app import words as app
from numpy_attention.app.main import main
from numpy_attention.app.words import words
from numpy_attention.models.c23b_generate import stream
from numpy_attention.pretrained import named
from numpy_attention.pretrained.c35_tokenizer import Tokenizer
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED, shipped
from numpy_attention.training.c27_data import CharVocabulary
from numpy_attention.training.c27a_byte_pairs import BytePairVocabulary, ByteVocabulary
from tests.app.commands import refused
from tests.pretrained import tiny

Captured = pytest.CaptureFixture[str]
VOCABULARIES = {
    "characters": CharVocabulary("abc \n\u20ac\U0001f642\ufffd"),
    "bytes": ByteVocabulary(),
    "pairs of bytes": BytePairVocabulary([(226, 130), (256, 172), (97, 256), (172, 97)]),
    "pretrained": Tokenizer(tiny.byte_pairs()),
}


def test_sample_continues_the_prompt_and_is_repeatable(capsys: Captured) -> None:
    options = ["--tokens", "20", "--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--seed"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["sample", "--prompt", "The quick ", *options, seed]) == 0
        out, err = capsys.readouterr()
        texts.append(out)
        assert err == NO_MODEL_NAMED + "\n", "on standard error, not in the text"
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("The quick ")
    assert len(texts[0]) == len("The quick ") + 20 + 1


def test_sample_equals_generate_and_is_printed_as_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    model, vocabulary = shipped()
    ids = model.generate(vocabulary.encode("The "), 20, rng=np.random.default_rng(3), temperature=0.8)
    arrived, seen = io.BytesIO(), []

    def noted(*arguments: Any, **options: Any) -> Iterator[int]:
        for i in stream(*arguments, **options):
            seen.append(arrived.getvalue().decode())
            yield i

    monkeypatch.setattr(app, "stream", noted)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(arrived, encoding="utf-8"))  # which waits for a flush
    assert main(["sample", str(FOLDER), "--tokens", "20", "--seed", "3"]) == 0
    whole = vocabulary.decode(ids)
    assert arrived.getvalue().decode() == whole + "\n"
    assert seen == [whole[: len("The ") + n] for n in range(20)], "each is printed before the next is drawn"


def test_pretrained_model_stops_at_its_end_token(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tiny.write(tmp_path, "gpt2")
    model, tokenizer = load_pretrained(path)
    prompt = tokenizer.encode("the user")
    written = model.generate(prompt, 9, temperature=0.0)[len(prompt) :].tolist()
    end = next(n for n, i in enumerate(written) if i != written[0])
    loaded = model, Tokenizer(tokenizer.tokenizer, {written[end]})
    monkeypatch.setattr(named, "load_pretrained", lambda path: loaded)
    assert main(["sample", str(path), "--prompt", "the user", "--tokens", "9", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == tokenizer.decode(np.array([*prompt, *written[: end + 1]])) + "\n"


@pytest.mark.parametrize(("options", "message"), [
    (["--prompt", "The \u20ac"], "unknown to the model: '\u20ac'"),
    (["--prompt", ""], "--prompt must hold at least one character"),
    (["--tokens", "-3"], "--tokens must be in [0, 2147483647], got -3"),
    (["--tokens", "many"], "invalid int value: 'many'"),
    (["--temperature", "nan"], "--temperature must be at least 0 and finite, got nan"),
], ids=lambda one: " ".join(one) if isinstance(one, list) else "")
def test_refuses_unusable_arguments(capsys: Captured, options: list[str], message: str) -> None:
    assert message in refused(capsys, "sample", FOLDER, *options)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_pieces_together_equal_the_whole_text(name: str, rng: np.random.Generator) -> None:
    vocabulary = VOCABULARIES[name]
    for length in (0, 1, 2, 3, *range(5, 60, 6)):
        ids = rng.integers(0, len(vocabulary), length)
        assert "".join(words(vocabulary, ids.tolist())) == vocabulary.decode(ids)


@pytest.mark.parametrize("name", VOCABULARIES)
def test_each_piece_decodes_only_the_last_ids(name: str, rng: np.random.Generator) -> None:
    """So the time for a long answer grows with its length, not with the square."""
    vocabulary, lengths = VOCABULARIES[name], []

    class Noted:
        def decode(self, ids: np.ndarray) -> str:
            lengths.append(len(ids))
            return vocabulary.decode(ids)

    ids = vocabulary.encode("cab a " * 100)
    assert "".join(words(cast("Any", Noted()), ids.tolist())) == "cab a " * 100
    assert max(lengths) <= 3


@pytest.mark.parametrize("name", ["bytes", "pairs of bytes", "pretrained"])
def test_character_is_given_after_its_last_byte(name: str) -> None:
    vocabulary, drawn, so_far = VOCABULARIES[name], [], ""

    def draw() -> Iterator[int]:
        for i in vocabulary.encode("a\u20ac\U0001f642 na\u00efve").tolist():
            drawn.append(i)
            yield i

    for piece in words(vocabulary, draw()):
        so_far += piece
        assert "\ufffd" not in piece
        assert so_far == vocabulary.decode(np.array(drawn)), "nothing that is certain is kept back"
    assert so_far == "a\u20ac\U0001f642 na\u00efve"
