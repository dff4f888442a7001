"""`sample`: a prompt goes on, repeatably, or is refused."""

import io
import sys

import numpy as np
import pytest

from numpy_attention.app import sample, source
from numpy_attention.app.main import main
from numpy_attention.models.generate import stream
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED
from numpy_attention.pretrained.tokenizer import Tokenizer
from numpy_attention.training.restore import load_run, text_model
from tests.app.commands import refused, run_directory, text
from tests.pretrained import tiny

__all__ = ["run_directory", "text"]


def test_sample_continues_the_prompt_and_is_repeatable(run_directory, capsys):
    command = ["sample", str(run_directory), "--prompt", "The ", "--tokens", "30", "--temperature", "0.8",
               "--top-k", "40", "--top-p", "0.95", "--seed"]
    texts = []
    for seed in ("1", "1", "2"):
        assert main([*command, seed]) == 0
        texts.append(capsys.readouterr().out)
    assert texts[0] == texts[1] != texts[2]
    assert texts[0].startswith("The ")
    assert len(texts[0]) == len("The ") + 30 + 1


def test_without_a_model_sample_uses_the_small_gpt(capsys):
    assert main(["sample", "--tokens", "20", "--seed", "1"]) == 0
    printed = capsys.readouterr()
    assert main(["sample", str(FOLDER), "--tokens", "20", "--seed", "1"]) == 0
    assert printed.out == capsys.readouterr().out
    assert len(printed.out) == len("The ") + 20 + 1
    assert printed.err == NO_MODEL_NAMED + "\n", "beside the text, not in it"


def test_a_prompt_longer_than_the_context_is_continued(run_directory, capsys):
    assert main(["sample", str(run_directory), "--prompt", "The quick brown fox", "--tokens", "5"]) == 0
    assert len(capsys.readouterr().out) == len("The quick brown fox") + 5 + 1


def test_sample_refuses_unusable_arguments(run_directory, tmp_path, capsys):
    assert "nowhere" in refused(capsys, "sample", tmp_path / "nowhere")
    assert "holds no checkpoint" in refused(capsys, "sample", tmp_path)
    assert "unknown to the model: '\u20ac'" in refused(capsys, "sample", run_directory, "--prompt", "The \u20ac")
    assert "--prompt" in refused(capsys, "sample", run_directory, "--prompt", "")
    for option, bad in (("tokens", -1), ("temperature", -1), ("temperature", "nan"), ("top-k", 0), ("top-p", 1.5),
                        ("seed", -1)):  # fmt: skip
        refused(capsys, "sample", run_directory, f"--{option}", bad)
    checkpoint = run_directory / "checkpoint.npz"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-100])
    assert "damaged" in refused(capsys, "sample", run_directory)
    checkpoint.write_bytes(b"no zip at all")
    assert "damaged" in refused(capsys, "train", "--resume", run_directory)


def test_sample_equals_generate_and_is_printed_as_it_is_drawn(run_directory, capsys, monkeypatch):
    model, vocabulary = text_model(*load_run(run_directory)[1:])
    ids = model.generate(vocabulary.encode("The "), 20, rng=np.random.default_rng(3), temperature=0.8)
    arrived, seen = io.BytesIO(), []

    def noted(*arguments, **options):
        for i in stream(*arguments, **options):
            seen.append(arrived.getvalue().decode())
            yield i

    monkeypatch.setattr(sample, "stream", noted)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(arrived, encoding="utf-8"))  # which waits for a flush
    assert main(["sample", str(run_directory), "--tokens", "20", "--seed", "3"]) == 0
    whole = vocabulary.decode(ids)
    assert arrived.getvalue().decode() == whole + "\n"
    assert seen == [whole[: len("The ") + n] for n in range(20)], "each stands there before the next is drawn"


@pytest.mark.parametrize("name", ["llama gguf", "qwen2", "gpt2"])
def test_pretrained_model_stops_at_its_end_token(name, tmp_path, capsys, monkeypatch):
    path = tiny.write(tmp_path, name)
    model, tokenizer = load_pretrained(path)
    prompt = tokenizer.encode("the user")
    message = model.generate(prompt, 9, temperature=0.0)[len(prompt):].tolist()
    again = message[next(n for n, i in enumerate(message) if i != message[0])]
    for stop in ({2}, {again}):  # the file's own, and one that this model does write
        loaded = model, Tokenizer(tokenizer.tokenizer, stop)
        monkeypatch.setattr(source, "load_pretrained", lambda path, loaded=loaded: loaded)
        assert main(["sample", str(path), "--prompt", "the user", "--tokens", "9", "--temperature", "0"]) == 0
        end = next((n for n, i in enumerate(message, 1) if i in stop), 9)
        assert capsys.readouterr().out == tokenizer.decode(np.array([*prompt, *message[:end]])) + "\n"
    assert end < 9
    assert tokenizer.stop == {2}


def test_error_names_models_that_do_not_write_and_missing_models(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "python -m numpy_attention fetch smollm2" in refused(capsys, "sample", "smollm2")
    assert "only a GPT can continue a prompt" in refused(capsys, "sample", tiny.write(tmp_path, "bert"))
    assert "half a surrogate pair" in refused(capsys, "sample", tiny.write(tmp_path, "gpt2"), "--prompt", "\udc80")
