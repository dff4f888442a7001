"""The model that a command means: names, files, folders and runs."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.pretrained.fetch import SOURCES
from numpy_attention.pretrained.named import encoded, load_model
from tests.app.commands import run_directory, text, trained
from tests.pretrained import tiny

__all__ = ["run_directory", "text"]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path / "cache"
    cache.mkdir()
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(cache))
    monkeypatch.chdir(tmp_path)
    return cache


def test_name_means_the_fetched_model_unless_a_folder_has_that_name(cache: Path) -> None:
    with pytest.raises(InputError, match="-m numpy_attention fetch smollm2"):
        load_model("smollm2", GPT, "talk")
    tiny.write(cache, "llama gguf").rename(cache / SOURCES["smollm2"].model)
    assert isinstance(load_model("smollm2", GPT, "talk")[0], GPT)
    tiny.write(cache.parent, "bert").rename(cache.parent / "smollm2")
    assert isinstance(load_model("smollm2", Model, "be read")[0], TextEncoder)


def test_error_for_a_part_of_a_model_says_what_to_give(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"model.safetensors holds numbers without settings; give its folder"):
        load_model(str(tiny.write(tmp_path, "llama") / "model.safetensors"), GPT, "talk")
    (tmp_path / "one").mkdir()
    tiny.write(tmp_path / "one", "llama gguf").rename(tmp_path / "one" / "m.gguf")
    with pytest.raises(InputError, match="one is a folder with a GGUF file; give the file"):
        load_model(str(tmp_path / "one"), GPT, "talk")
    tiny.write(tmp_path, "qwen2")
    shutil.copy(tmp_path / "one" / "m.gguf", tmp_path / "qwen2")
    load_model(str(tmp_path / "qwen2"), GPT, "talk")  # a folder may have both


def test_files_and_folders_give_the_model_and_its_tokenizer(tmp_path: Path) -> None:
    of_file = tiny.write(tmp_path, "llama gguf").rename(tmp_path / "any name")
    for path in (of_file, tiny.write(tmp_path, "llama")):
        model, vocabulary = load_model(str(path), GPT, "talk")
        assert model.config.vocab_size == len(vocabulary) == tiny.V
        assert encoded(vocabulary, "the user", "--text").tolist() == vocabulary.encode("the user").tolist()
    _, vocabulary = load_model(str(tiny.write(tmp_path, "bert")), TextEncoder, "compare")
    ids = encoded(vocabulary, "the [SEP]", "--text")
    assert encoded(vocabulary, "the", "--prompt", prompt=True).tolist() == [2, *vocabulary.encode("the")]
    assert vocabulary.labels(ids) == ["[CLS]", "the", "[UNK]", "[UNK]", "[UNK]", "[SEP]"], "typed, so not special"


def test_refuses_missing_models_and_models_of_another_kind(cache: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere.*known .*smollm2, minilm"):
        load_model("nowhere", GPT, "talk")
    with pytest.raises(InputError, match=r"holds no checkpoint\.npz; give a directory that `train` has written"):
        load_model(str(cache), GPT, "talk")
    with pytest.raises(InputError, match="is a TextEncoder; only a GPT can talk"):
        load_model(str(tiny.write(cache, "bert")), GPT, "talk")
    trained("--task=sum", "--out", cache / "run", "--steps=1", "--d-model=8", "--heads=1", "--batch=4", "--workers=1")
    with pytest.raises(InputError, match="a model of the task 'sum'; only a text model reads a text"):
        load_model(str(cache / "run"), GPT, "talk")


@pytest.mark.parametrize("options", [["--lora", "2"], []], ids=["low rank", "all weights"])
def test_fine_tuned_run_loads_the_pretrained_model_with_the_learned_parameters(
    tmp_path: Path, text: Path, options: list[str]
) -> None:
    base, run = tiny.write(tmp_path, "llama"), tmp_path / "run"
    steps = ["--steps=2", "--eval-every=2", "--batch=2", "--context=9", "--workers=1", "--learning-rate=0.1"]
    trained("--from", base, "--text", text, "--out", run, *steps, *options)
    before, _ = load_model(str(base), GPT, "write")
    after, vocabulary = load_model(str(run), GPT, "write")
    ids = encoded(vocabulary, "the user", "--text")[None]
    assert np.abs(after.forward(ids)[0] - before.forward(ids)[0]).max() > 1e-3
    shutil.rmtree(base)
    (tmp_path / "other").mkdir()
    tiny.folder(tiny.TIED)(tmp_path / "other", "other").rename(base)
    with pytest.raises(InputError, match=r"is not the model from which .* started"):
        load_model(str(run), GPT, "write")
