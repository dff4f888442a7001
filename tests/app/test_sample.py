"""`sample`: a prompt goes on, repeatably, or is refused."""

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention.app import sample, source
from numpy_attention.app.main import main
from numpy_attention.models.generate import stream
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED, shipped
from numpy_attention.pretrained.tokenizer import Tokenizer
from tests.app.commands import refused
from tests.pretrained import tiny

Captured = pytest.CaptureFixture[str]


def test_sample_continues_the_prompt_and_is_repeatable(capsys: Captured) -> None:
    options = ["--tokens", "20", "--temperature", "0.9", "--top-k", "40", "--top-p", "0.95", "--seed"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main(["sample", "--prompt", "The quick ", *options, seed]) == 0
        out, err = capsys.readouterr()
        texts.append(out)
        assert err == NO_MODEL_NAMED + "\n", "beside the text, not in it"
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

    monkeypatch.setattr(sample, "stream", noted)
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
    monkeypatch.setattr(source, "load_pretrained", lambda path: loaded)
    assert main(["sample", str(path), "--prompt", "the user", "--tokens", "9", "--temperature", "0"]) == 0
    assert capsys.readouterr().out == tokenizer.decode(np.array([*prompt, *written[: end + 1]])) + "\n"


def test_sample_refuses_unusable_arguments(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "nowhere" in refused(capsys, "sample", tmp_path / "nowhere")
    assert "holds no checkpoint" in refused(capsys, "sample", tmp_path)
    assert "python -m numpy_attention fetch smollm2" in refused(capsys, "sample", "smollm2")
    assert "unknown to the model: '\u20ac'" in refused(capsys, "sample", FOLDER, "--prompt", "The \u20ac")
    assert "--prompt must hold" in refused(capsys, "sample", FOLDER, "--prompt", "")
    assert "only a GPT can continue a prompt" in refused(capsys, "sample", tiny.write(tmp_path, "bert"))
