"""Which model a command means: names, files, folders and runs; an empty name is none."""

import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.app.source import encoded, load_model, pretrained_path
from numpy_attention.errors import InputError
from numpy_attention.files import load_arrays, save_arrays
from numpy_attention.models.gpt import GPT
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.pretrained.fetch import SOURCES
from tests.app.commands import refused, run_directory, text, trained
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
    with pytest.raises(InputError, match="python -m numpy_attention fetch smollm2"):
        pretrained_path("smollm2")
    tiny.write(cache, "llama gguf").rename(cache / SOURCES["smollm2"].model)
    assert pretrained_path("smollm2") == cache / SOURCES["smollm2"].model
    tiny.write(cache.parent, "llama").rename(cache.parent / "smollm2")
    assert pretrained_path("smollm2") == Path("smollm2")


def test_files_and_folders_give_the_model_and_its_tokenizer(tmp_path: Path) -> None:
    of_file, of_folder = tiny.write(tmp_path, "llama gguf"), tiny.write(tmp_path, "llama")
    for path in (of_file, of_folder):
        model, vocabulary = load_model(str(path), GPT, "talk")
        assert model.config.vocab_size == len(vocabulary) == tiny.V
        assert encoded(vocabulary, "the user", "--text").tolist() == vocabulary.encode("the user").tolist()
    model, vocabulary = load_model(str(tiny.write(tmp_path, "bert")), TextEncoder, "compare")
    ids = encoded(vocabulary, "the [SEP]", "--text")
    assert vocabulary.labels(ids) == ["[CLS]", "the", "[UNK]", "[UNK]", "[UNK]", "[SEP]"]


def test_gguf_file_may_have_any_name(tmp_path: Path) -> None:
    renamed = tiny.write(tmp_path, "llama gguf").rename(tmp_path / "model")
    assert pretrained_path(str(renamed)) == renamed
    assert load_model(str(renamed), GPT, "talk")[0].config.vocab_size == tiny.V


def test_directory_of_a_run_is_a_run_although_it_holds_config_json(run_directory: Path) -> None:
    for path in (run_directory, run_directory / "checkpoint.npz"):
        assert pretrained_path(str(path)) is None
        model, vocabulary = load_model(str(path), GPT, "write")
        assert encoded(vocabulary, "The dog", "--text").shape == (7,)
        assert model.config.context_length == 8
    log = run_directory / "log.jsonl"
    log.rename(run_directory / "kept")
    assert pretrained_path(str(run_directory)) is None, "a checkpoint is enough"
    (run_directory / "kept").rename(log)
    (run_directory / "checkpoint.npz").unlink()  # a run that was killed before its first
    with pytest.raises(InputError, match=r"holds no checkpoint\.npz"):
        load_model(str(run_directory), GPT, "write")


def test_error_names_a_model_of_another_kind(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is a TextEncoder; only a GPT can talk"):
        load_model(str(tiny.write(tmp_path, "bert")), GPT, "talk")
    with pytest.raises(InputError, match="is a GPT; only a TextEncoder can compare meanings"):
        load_model(str(tiny.write(tmp_path, "gpt2")), TextEncoder, "compare meanings")


def test_refuses_missing_models(cache: Path) -> None:
    for nowhere in ("nowhere", "nowhere.gguf", "nowhere/run"):
        with pytest.raises(InputError, match=f"{nowhere}.*known .*smollm2, minilm"):
            load_model(nowhere, GPT, "talk")
    (cache / "adapter.safetensors").write_bytes(b"")
    with pytest.raises(InputError, match=r"adapter\.safetensors holds only the parameters; give the folder"):
        load_model(str(cache / "adapter.safetensors"), GPT, "talk")
    (cache / "empty").mkdir()
    with pytest.raises(InputError, match=r"holds no checkpoint\.npz"):
        load_model(str(cache / "empty"), GPT, "talk")


@pytest.mark.parametrize("options", [["--lora", "2"], []], ids=["low rank", "all weights"])
def test_fine_tuned_run_loads_the_pretrained_model_with_the_learned_parameters(
    tmp_path: Path, text: Path, options: list[str]
) -> None:
    base = tiny.write(tmp_path, "llama")
    run = tmp_path / "run"
    steps = ["--steps=2", "--eval-every=2", "--batch=2", "--context=9", "--workers=1", "--learning-rate=0.1"]
    trained("--from", base, "--text", text, "--out", run, *steps, *options)
    before, _ = load_model(str(base), GPT, "write")
    after, vocabulary = load_model(str(run), GPT, "write")
    assert len(vocabulary) == tiny.V
    ids = encoded(vocabulary, "the user", "--text")[None]
    assert np.abs(after.forward(ids)[0] - before.forward(ids)[0]).max() > 1e-3
    shutil.rmtree(base)
    (tmp_path / "other").mkdir()
    (tiny.folder(tiny.TIED)(tmp_path / "other", "other")).rename(base)
    with pytest.raises(InputError, match=r"is not the model from which .* started"):
        load_model(str(run), GPT, "write")


@pytest.mark.parametrize(
    ("command", "dtype"),
    [("sample", np.float16), ("sample", np.float32), ("attend", np.float32), ("train", np.float32)],
)
def test_error_names_a_parameter_that_is_not_finite(
    run_directory: Path, command: str, dtype: type, capsys: pytest.CaptureFixture[str]
) -> None:
    path = run_directory / "checkpoint.npz"
    arrays, meta = load_arrays(path)
    name = "parameters.blocks.0.attention.w_q"
    arrays[name][3, 5] = np.nan
    if dtype == np.float16:  # as the model that comes with the book is kept
        arrays = {name: array.astype(dtype) for name, array in arrays.items() if name.startswith("parameters.")}
    save_arrays(path, arrays, meta)
    run = run_directory
    options = {"sample": [run], "attend": [run, "--text", "The"], "train": ["--resume", run]}
    err = refused(capsys, command, *options[command])
    assert f"{name} holds nan at [3, 5]" in err


@pytest.mark.parametrize("option", ["--out", "--resume", "--config", "--text", "--from"])
def test_empty_name_does_not_mean_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "train", option, "")
    assert option in err
    assert "''" in err
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("arguments", [["embed", "minilm", "", "--query=a"], ["attend", "--out", ""]], ids=" ".join)
def test_refuses_empty_name(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "must be a name, got ''" in refused(capsys, *arguments)
