"""Models as safetensors files: what the package reads is what we have, and what it writes we take back."""

import builtins
import json

import numpy as np
import pytest
import safetensors.numpy

import numpy_attention as na
from numpy_attention.errors import InputError
from tests.models.gradients import randomized
from tests.models.twin_cases import CLASSES, MODELS, make


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_model_comes_back_as_it_was(name, dtype, rng, tmp_path):
    config = MODELS[name]
    model = randomized(CLASSES[type(config)](config, None, dtype), rng)
    na.export_safetensors(model, tmp_path / "model.safetensors")
    loaded = na.import_safetensors(str(tmp_path / "model.safetensors"))
    assert type(loaded) is type(model)
    assert loaded.config == config
    assert loaded.parameters().keys() == model.parameters().keys()
    for key, p in loaded.parameters().items():
        assert p.dtype == dtype
        assert p.flags.writeable
        np.testing.assert_array_equal(p, model.parameters()[key])
    assert [path.name for path in tmp_path.iterdir()] == ["model.safetensors"]


def test_the_package_and_the_format_itself_see_the_parameters_by_name(tmp_path):
    model, _ = make("gpt")
    path = tmp_path / "model.safetensors"
    na.export_safetensors(model, path)
    arrays = safetensors.numpy.load_file(path)
    raw = path.read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + length])
    assert json.loads(header.pop("__metadata__")["numpy_attention"])["class"] == "GPT"
    assert arrays.keys() == header.keys() == model.parameters().keys()
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(arrays[name], p)
        start, end = header[name]["data_offsets"]
        assert raw[8 + length + start : 8 + length + end] == p.tobytes()
        assert header[name]["shape"] == list(p.shape)


def test_parameters_that_are_views_in_another_order_are_written_rightly(tmp_path, rng):
    model, _ = make("gpt")
    w = rng.standard_normal((5, 4))
    layer = type("Strided", (), {"parameters": lambda self: {"w": w.T}, "config": model.config})()
    na.export_safetensors(layer, tmp_path / "w.safetensors")
    np.testing.assert_array_equal(safetensors.numpy.load_file(tmp_path / "w.safetensors")["w"], w.T)


def test_a_file_that_the_package_wrote_fills_a_model_by_name(tmp_path, rng):
    model, _ = make("gpt")
    arrays = {name: rng.standard_normal(p.shape).astype(p.dtype) for name, p in model.parameters().items()}
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file(arrays, path)
    assert na.import_safetensors(path, into=model) is model
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(p, arrays[name])
    with pytest.raises(InputError, match="does not tell what model it holds"):
        na.import_safetensors(path)


def test_all_differences_to_the_model_are_told_and_nothing_is_written(tmp_path):
    model, _ = make("gpt")
    arrays = {name: np.ones_like(p) for name, p in model.parameters().items()}
    names = sorted(arrays)
    del arrays[names[0]]
    arrays[names[1]] = arrays[names[1]][..., :1].copy()
    arrays["other"] = np.ones(3)
    path = tmp_path / "wrong.safetensors"
    safetensors.numpy.save_file(arrays, path)
    before = {name: p.copy() for name, p in model.parameters().items()}
    with pytest.raises(InputError) as caught:
        na.import_safetensors(path, into=model)
    for said in (f"{names[0]} is missing", f"{names[1]} is ", "other is not part of the model"):
        assert said in str(caught.value)
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(p, before[name])


def test_damaged_files_are_refused_in_one_line_or_load_right(tmp_path, rng):
    """The format has no checksums: a flipped number cannot be noticed, a flipped header must be."""
    model, _ = make("classifier")
    path = tmp_path / "model.safetensors"
    na.export_safetensors(model, path)
    whole = path.read_bytes()
    header = 8 + int.from_bytes(whole[:8], "little")
    refused = loads = 0
    for trial in range(150):
        damaged = bytearray(whole)
        if trial % 3:
            damaged[rng.integers(header)] ^= 1 << rng.integers(8)
        else:
            del damaged[rng.integers(len(whole)) :]
        path.write_bytes(damaged)
        try:
            loaded = na.import_safetensors(path)
        except InputError as error:
            said = str(error)
            refused += "\n" not in said and len(said) < 2000
            continue
        loads += 1
        for name, p in loaded.parameters().items():
            assert p.shape == model.parameters()[name].shape
    assert refused + loads == 150
    assert refused > 100


@pytest.mark.parametrize(
    "about",
    ["{", "[]", "{}", '{"class": "Llama", "model": {}}', '{"class": "GPT", "model": {"d_model": 1000000000}}',
     '{"class": "GPT", "model": []}', "[" * 100_000],
)  # fmt: skip
def test_a_file_that_tells_nonsense_of_its_model_is_refused(tmp_path, about):
    path = tmp_path / "model.safetensors"
    safetensors.numpy.save_file({"w": np.ones(3)}, path, metadata={"numpy_attention": about})
    with pytest.raises(InputError, match="does not hold"):
        na.import_safetensors(path)


def test_a_missing_file_is_told(tmp_path):
    with pytest.raises(InputError, match="there is no file"):
        na.import_safetensors(tmp_path / "none.safetensors")


def test_without_the_package_one_line_says_what_to_install(tmp_path, monkeypatch):
    usual = builtins.__import__

    def without(name, *arguments):
        if name.startswith("safetensors"):
            raise ImportError(name)
        return usual(name, *arguments)

    model, _ = make("gpt")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(InputError, match="pip install safetensors"):
        na.export_safetensors(model, tmp_path / "model.safetensors")
