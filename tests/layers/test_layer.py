"""Rules for every layer: parameters by name, right gradients, and nothing stored between calls."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.backend import NumPyBackend
from numpy_attention.layers.c13_layer import flat_gradients
from tests.layers.gradients import MASK, assert_gradients, randomized

Make = Callable[[np.random.Generator, type], Any]
DROPOUT: dict[str, Any] = {"dropout": True}
WITH_MASK: dict[str, Any] = {"mask": MASK, **DROPOUT}
LAYERS: dict[str, tuple[Make, dict[str, Any]]] = {
    "linear": (lambda rng, dtype: na.Linear(12, 7, rng, dtype=dtype), {}),
    "linear without bias": (lambda rng, dtype: na.Linear(12, 7, rng, bias=False, dtype=dtype), {}),
    "layer norm": (lambda rng, dtype: na.LayerNorm(12, dtype=dtype), {}),
    "rms norm": (lambda rng, dtype: na.RMSNorm(12, dtype=dtype), {}),
    "learned positions": (lambda rng, dtype: na.PositionEmbedding("learned", 6, 12, rng, dtype), {}),
    "sinusoidal positions": (lambda rng, dtype: na.PositionEmbedding("sinusoidal", 6, 12, rng, dtype), {}),
    "attention": (lambda rng, dtype: na.MultiHeadAttention(12, 3, rng, bias=True, dtype=dtype), WITH_MASK),
    "attention, shared keys": (
        lambda rng, dtype: na.MultiHeadAttention(12, 4, rng, num_kv_heads=2, d_k=2, d_v=5, dtype=dtype),
        WITH_MASK),
    "attention, rotary": (
        lambda rng, dtype: na.MultiHeadAttention(12, 3, rng, rotary_base=100.0, dropout=0.3, dtype=dtype),
        WITH_MASK),
    "feed-forward, gelu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "gelu", dropout=0.2, dtype=dtype), DROPOUT),
    "feed-forward, swiglu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "swiglu", dtype=dtype), DROPOUT),
    "feed-forward, silu": (lambda rng, dtype: na.FeedForward(12, 7, rng, "silu", bias=False, dtype=dtype), DROPOUT),
    "encoder, post-norm": (
        lambda rng, dtype: na.EncoderBlock(12, 3, 7, rng, activation="gelu", dropout=0.2, dtype=dtype), WITH_MASK),
    "encoder, pre-norm": (
        lambda rng, dtype: na.EncoderBlock(
            12, 3, 7, rng, pre_norm=True, norm="rms_norm", activation="swiglu",
            attention={"num_kv_heads": 1}, dtype=dtype),
        WITH_MASK),
    "decoder, post-norm": (
        lambda rng, dtype: na.DecoderBlock(12, 3, 7, rng, activation="gelu", dropout=0.2, dtype=dtype), WITH_MASK),
    "decoder, pre-norm": (
        lambda rng, dtype: na.DecoderBlock(12, 3, 7, rng, pre_norm=True, activation="gelu", dtype=dtype),
        WITH_MASK),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_gradients_agree_with_central_differences(name, rng):
    make, options = LAYERS[name]
    layer = randomized(make(rng, np.float64), rng)
    assert_gradients(layer, (rng.standard_normal((3, 5, 12)),), options, rng)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_applied_twice_adds_two_gradients(name, rng):
    make, options = LAYERS[name]
    options = {key: value for key, value in options.items() if key != "dropout"}
    layer = randomized(make(rng, np.float64), rng)
    x_1, x_2 = rng.standard_normal((2, 3, 5, 12))
    y, cache_1 = layer.forward(x_1, **options)
    _, cache_2 = layer.forward(x_2, **options)  # the second call must not change the first cache
    dy = rng.standard_normal(y.shape)
    _, grads_1 = layer.backward(dy, cache_1)
    _, grads_2 = layer.backward(dy, cache_2)
    _, cache = layer.forward(np.concatenate([x_1, x_2]), **options)
    _, grads = layer.backward(np.concatenate([dy, dy]), cache)
    for name, gradient in grads.items():
        np.testing.assert_allclose(grads_1[name] + grads_2[name], gradient, rtol=1e-9, atol=1e-11)


def test_float32_and_float64_start_with_the_same_weights():
    for make, _ in LAYERS.values():
        single, double = (make(np.random.default_rng(3), dtype) for dtype in (np.float32, np.float64))
        for name, p in single.parameters().items():
            np.testing.assert_array_equal(p, double.parameters()[name].astype(np.float32))


@pytest.mark.parametrize("name", LAYERS)
def test_biases_start_at_zero_gains_at_one_and_matrices_at_random(name, rng):
    for dotted, p in LAYERS[name][0](rng, np.float64).parameters().items():
        last = dotted.rpartition(".")[2]
        if last == "gamma":
            np.testing.assert_array_equal(p, 1.0)
        elif last == "beta" or last.startswith("b"):
            np.testing.assert_array_equal(p, 0.0)
        else:
            assert 0 < p.std() < 1
            assert len(np.unique(p)) == p.size


def test_parameters_returns_the_arrays_themselves_by_dotted_name(rng):
    block = na.DecoderBlock(12, 3, 7, rng, cross_attention=True)
    parameters = block.parameters()
    assert parameters["cross_attention.w_q"] is block.cross_attention.w_q
    names = ("w_q", "w_k", "w_v", "w_o", "b_q", "b_k", "b_v", "b_o")
    assert list(parameters)[:8] == [f"attention.{name}" for name in names]
    assert block.num_parameters() == 2 * 4 * (144 + 12) + 3 * 24 + 84 + 7 + 84 + 12
    assert list(na.MultiHeadAttention(12, 3, rng).parameters()) == ["w_q", "w_k", "w_v", "w_o"]


def test_loading_lists_every_mismatch_and_changes_nothing(rng):
    layer = na.FeedForward(4, 6, rng)
    before = copy.deepcopy(layer.parameters())
    w_2 = before["w_2"]
    wrong = {"w_1": before["w_1"].T, "b_1": before["b_1"].astype(np.float64), "w_2": w_2, "w_3": w_2}
    message = r"(?s)FeedForward.*b_1 is float64 \(6,\), expected float32.*b_2 is missing.*w_1 is.*w_3 is not part of"
    with pytest.raises(ValueError, match=message):
        layer.load_parameters(wrong)
    for name, p in layer.parameters().items():
        np.testing.assert_array_equal(p, before[name])
    arrays = {name: p + 1 for name, p in before.items()}
    w_1 = layer.w_1
    layer.load_parameters(arrays)
    assert layer.w_1 is w_1
    np.testing.assert_array_equal(w_1, before["w_1"] + 1)


def test_replaced_parameters_are_used(rng):
    block = na.EncoderBlock(4, 2, 6, rng, dtype=np.float64)
    x = rng.standard_normal((2, 3, 4))
    y, _ = block.forward(x)
    flat = np.concatenate([p.ravel() for p in block.parameters().values()])
    places = iter(np.split(flat, np.cumsum([p.size for p in block.parameters().values()])))
    names = []
    block.replace_parameters(lambda name, p: names.append(name) or next(places).reshape(p.shape))
    assert names == list(block.parameters())
    np.testing.assert_array_equal(block.forward(x)[0], y)
    flat *= 2.0
    assert not np.allclose(block.forward(x)[0], y)


def test_arrays_yields_every_array_with_its_owner_frozen_or_not(rng):
    block = na.DecoderBlock(12, 3, 7, rng, cross_attention=True)
    found = {dotted: (owner, name) for dotted, owner, name in block.arrays()}
    assert list(found) == list(block.parameters())
    assert found["cross_attention.w_q"] == (block.cross_attention, "w_q")
    block.freeze()
    assert {dotted: (owner, name) for dotted, owner, name in block.arrays()} == found


def test_frozen_arrays_are_not_parameters_until_unfrozen(rng):
    block = na.EncoderBlock(12, 3, 7, rng)
    names = list(block.parameters())
    block.attention.freeze()
    assert list(block.parameters()) == [name for name in names if not name.startswith("attention.")]
    block.norm_1.frozen = ("gamma",)
    assert "norm_1.beta" in block.parameters()
    assert "norm_1.gamma" not in block.parameters()
    assert sorted([*block.frozen_arrays(), *block.parameters()]) == sorted(names)
    block.freeze()
    assert block.frozen_arrays() == names
    assert block.parameters() == {}
    assert block.num_parameters() == 0
    block.feed_forward.unfreeze()
    assert list(block.parameters()) == [name for name in names if name.startswith("feed_forward.")]
    block.unfreeze()
    assert list(block.parameters()) == names
    assert na.EncoderBlock(12, 3, 7, rng).parameters(), "another layer of the class is not frozen with it"


def test_arrays_frozen_by_a_class_stay_frozen(rng):
    class Shifted(na.Linear):
        frozen = ("b",)

    layer = Shifted(4, 3, rng)
    assert list(layer.parameters()) == ["w"]
    layer.freeze()
    assert layer.parameters() == {}
    layer.unfreeze()
    assert list(layer.parameters()) == ["w"]


def test_frozen_arrays_are_used_copied_and_replaced_like_others(rng):
    layer = na.FeedForward(4, 6, rng)
    x = rng.standard_normal((2, 4))
    expected, _ = layer.forward(x.astype(np.float32))
    layer.freeze()
    np.testing.assert_array_equal(layer.forward(x.astype(np.float32))[0], expected)
    layer.replace_parameters(lambda _, p: p.astype(np.float64))
    assert layer.forward(x)[0].dtype == np.float64

    class CopyingBackend(NumPyBackend):
        def asarray(self, array):
            copied.append(array)
            return array.copy()

    copied, before = [], [layer.w_1, layer.b_1, layer.w_2, layer.b_2]
    assert layer.to(CopyingBackend()) is layer
    assert [id(array) for array in copied] == [id(array) for array in before]
    assert layer.w_1 is not before[0]
    assert layer.parameters() == {}


def test_load_parameters_takes_only_arrays_that_learn(rng):
    layer = na.FeedForward(4, 6, rng)
    w_1, b_1 = layer.w_1.copy(), layer.b_1.copy()
    layer.frozen = ("w_1", "w_2", "b_2")
    with pytest.raises(ValueError, match="w_1 is not part of"):
        layer.load_parameters({"b_1": b_1 + 1, "w_1": w_1})
    layer.load_parameters({"b_1": b_1 + 1})
    np.testing.assert_array_equal(layer.b_1, b_1 + 1)
    np.testing.assert_array_equal(layer.w_1, w_1)


def test_flat_gradients_joins_names_and_leaves_out_none():
    dw, da, db = np.ones((3, 1, 2))
    found = flat_gradients({"w_q": dw, "w_k": {"a": da, "b": db}, "b_q": None, "w_v": {"norm.gamma": db}})
    assert list(found) == ["w_q", "w_k.a", "w_k.b", "w_v.norm.gamma"]
    assert found["w_k.b"] is db


@pytest.mark.parametrize("new", [None, {"w": [[1.0]]}, {"w": None}], ids=str)
def test_refuses_to_load_anything_but_a_dict_of_arrays(new):
    layer = na.Linear(1, 1, None, bias=False)
    with pytest.raises(TypeError, match=r"Linear: new.* must be .*, got"):
        layer.load_parameters(new)


def test_error_for_many_mismatches_is_short(rng):
    model = na.GPT(na.GPTConfig(5, 4, d_model=8, num_heads=2, num_layers=4), rng)
    with pytest.raises(ValueError, match=r"GPT: the parameters do not fit: .* and \d+ more$") as caught:
        model.load_parameters({name: p.astype(np.float64) for name, p in model.parameters().items()})
    assert len(str(caught.value)) <= 500


def test_array_used_in_two_places_is_counted_once(rng):
    model = na.GPT(na.GPTConfig(5, 4, d_model=8, num_heads=2, num_layers=2), rng)
    count = model.num_parameters()
    model.blocks[0].attention.w_q = model.blocks[1].attention.w_q
    assert model.num_parameters() == count - 64


@pytest.mark.parametrize("dtype", [int, bool, complex, np.longdouble, ">f4", object])
def test_refuses_dtypes_other_than_native_floats(dtype, rng):
    config = na.GPTConfig(5, 4, d_model=8, num_heads=2, num_layers=1)
    for start in (rng, None):
        with pytest.raises(TypeError, match=r"dtype must be np\.float.* or np\.float64, got "):
            na.GPT(config, start, dtype=dtype)
        with pytest.raises(TypeError, match=r"dtype must be np\.float.* or np\.float64, got "):
            na.Linear(2, 3, start, dtype=dtype)
