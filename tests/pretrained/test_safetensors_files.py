"""Models as safetensors files: the package reads our files correctly, and we read files that the package wrote."""

import copy
import dataclasses
import json

import numpy as np
import pytest
import safetensors
import safetensors.numpy

import numpy_attention as na
from numpy_attention.errors import InputError
from tests.models.gradients import randomized
from tests.models.twin_cases import CLASSES, MODELS, make


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", MODELS)
def test_a_loaded_model_equals_the_saved_model(name, dtype, rng, tmp_path):
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


def test_a_model_with_experts_is_built_only_if_the_file_can_fill_them(rng, tmp_path):
    config = na.ExpertsGPTConfig(7, 5, 8, 2, 2, d_ff=3, bias=False, num_experts=4)
    model, path = na.ExpertsGPT(config, rng), tmp_path / "model.safetensors"
    na.export_safetensors(model, path)
    loaded = na.import_safetensors(path)
    assert (type(loaded), loaded.config) == (na.ExpertsGPT, config)
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(loaded.parameters()[name], p)
    about = {"class": "ExpertsGPT", "model": dataclasses.asdict(config) | {"num_experts": 10**9}}
    safetensors.numpy.save_file(model.parameters(), path, {"numpy_attention": json.dumps(about)})
    with pytest.raises(InputError, match="its sizes do not fit its arrays"):
        na.import_safetensors(path)


def test_the_file_holds_the_parameters_by_name(tmp_path):
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


def test_import_fills_a_model_by_name_from_a_file_of_the_package(tmp_path, rng):
    model, _ = make("gpt")
    arrays = {name: rng.standard_normal(p.shape).astype(p.dtype) for name, p in model.parameters().items()}
    path = tmp_path / "foreign.safetensors"
    safetensors.numpy.save_file(arrays, path)
    assert na.import_safetensors(path, into=model) is model
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(p, arrays[name])
    with pytest.raises(InputError, match="has no description of its model"):
        na.import_safetensors(path)


def test_error_lists_all_differences_and_the_model_is_unchanged(tmp_path):
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
    for expected in (f"{names[0]} is missing", f"{names[1]} is ", "other is not part of the model"):
        assert expected in str(caught.value)
    for name, p in model.parameters().items():
        np.testing.assert_array_equal(p, before[name])


ENCODER = na.TextEncoderConfig(11, 7, d_model=8, num_heads=4, num_layers=2, d_ff=9, pad_token=0, positions="learned")


def tuned(kind, rng, alpha=5.0):
    """A model, and a copy with random changes of rank 3."""
    base = make("gpt, llama")[0] if kind == "gpt" else randomized(na.TextEncoder(ENCODER, None, np.float64), rng)
    changed = copy.deepcopy(base)
    na.add_low_rank(changed, 3, alpha, rng)
    return base, randomized(changed, rng, 0.2)


@pytest.mark.parametrize("alpha", [5.0, None, 29])
@pytest.mark.parametrize("kind", ["gpt", "encoder"])
def test_low_rank_changes_are_saved_alone_and_loaded_into_their_model(kind, alpha, rng, tmp_path):
    base, changed = tuned(kind, rng, alpha)
    path = tmp_path / "adapter.safetensors"
    na.export_safetensors(changed, path)
    assert safetensors.numpy.load_file(path).keys() == changed.parameters().keys()
    with safetensors.safe_open(path, framework="numpy") as file:
        about = json.loads(file.metadata()["numpy_attention"])
    assert about["low_rank"] == {"rank": 3, "alpha": 6.0 if alpha is None else float(alpha)}
    held = {dotted: getattr(owner, name).copy() for dotted, owner, name in changed.arrays()}
    assert na.import_safetensors(path, into=base) is base
    assert {dotted for dotted, *_ in base.arrays()} == held.keys()
    for dotted, owner, name in base.arrays():
        np.testing.assert_array_equal(getattr(owner, name), held[dotted])
    assert base.parameters().keys() == changed.parameters().keys()
    ids = rng.integers(1, 7, (2, 4))
    np.testing.assert_array_equal(base.forward(ids)[0], changed.forward(ids)[0])


def test_refuses_low_rank_changes_of_another_model_and_leaves_this_one_unchanged(rng, tmp_path):
    base, changed = tuned("gpt", rng)
    path = tmp_path / "adapter.safetensors"
    na.export_safetensors(changed, path)
    other = "belong to a model with other parameters; load the model that they were learned on"
    for message, model in (
        (other, na.GPT(dataclasses.replace(base.config, d_ff=12), rng, np.float64)),
        (other, na.GPT(base.config, rng)), (other, na.GPT(base.config, rng, np.float64)),
        ("holds low-rank changes; give a GPT or TextEncoder without such changes", make("seq2seq")[0]),
    ):  # fmt: skip
        before = {name: p.copy() for name, p in model.parameters().items()}
        with pytest.raises(InputError, match=message):
            na.import_safetensors(path, into=model)
        assert list(model.parameters()) == list(before)
        for name, p in model.parameters().items():
            np.testing.assert_array_equal(p, before[name])
    with pytest.raises(InputError, match="without such changes"):
        na.import_safetensors(path, into=changed)


@pytest.mark.parametrize("low_rank", [False, True])
def test_export_of_infinity_is_refused_and_keeps_the_old_file(low_rank, rng, tmp_path):
    base, changed = tuned("gpt", rng)
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"good")
    w_q = changed.blocks[0].attention.w_q.a if low_rank else base.blocks[0].attention.w_q
    w_q[0, 1] = np.inf
    with pytest.raises(ValueError, match=r"export_safetensors: blocks\.0\.attention\.w_q.* must be finite, got inf at"):
        na.export_safetensors(changed if low_rank else base, path)
    assert path.read_bytes() == b"good"


def test_export_refuses_a_model_if_arrays_would_be_left_out(rng, tmp_path):
    base, changed = tuned("gpt", rng)
    changed.unfreeze()
    with pytest.raises(ValueError, match=r"blocks\.0\.norm_1\.gamma also learns .*call merge_low_rank first"):
        na.export_safetensors(changed, tmp_path / "more.safetensors")
    count = len(base.parameters())
    base.freeze()
    with pytest.raises(ValueError, match=f"{count} arrays are frozen and would be left out; call unfreeze first"):
        na.export_safetensors(base, tmp_path / "less.safetensors")
    assert not list(tmp_path.iterdir())
