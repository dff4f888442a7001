"""Odd inputs: settings that are NumPy scalars or not numbers, inputs that are not arrays, and axes of length zero."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import numpy_attention as na

MESSAGE = re.compile(r"^\w+: \w.* must (be|hold) .*, got ")
F = np.float64
Make = Callable[..., Any]
MAKE: dict[str, Make] = {
    "Linear": na.Linear,
    "Embedding": na.Embedding,
    "LayerNorm": lambda rng, **options: na.LayerNorm(**options),
    "RMSNorm": lambda rng, **options: na.RMSNorm(**options),
    "PositionEmbedding": partial(na.PositionEmbedding, "learned"),
    "FeedForward": na.FeedForward,
    "MultiHeadAttention": na.MultiHeadAttention,
    "EncoderBlock": na.EncoderBlock,
    "DecoderBlock": na.DecoderBlock,
    "LatentAttention": na.LatentAttention,
}
SIZES = {
    "Linear": {"d_in": 4, "d_out": 3},
    "Embedding": {"vocab_size": 5, "d_model": 4},
    "LayerNorm": {"d_model": 4},
    "RMSNorm": {"d_model": 4},
    "PositionEmbedding": {"length": 6, "d_model": 4},
    "FeedForward": {"d_model": 4, "d_ff": 6},
    "MultiHeadAttention": {"d_model": 4, "num_heads": 2, "num_kv_heads": 1, "d_k": 2, "d_v": 2},
    "EncoderBlock": {"d_model": 4, "num_heads": 2, "d_ff": 6},
    "DecoderBlock": {"d_model": 4, "num_heads": 2, "d_ff": 6},
    "LatentAttention": {
        "d_model": 4, "num_heads": 2, "rank": 3, "d_nope": 2, "d_rope": 2, "d_v": 3, "q_rank": 5,
    },
}
NUMBERS = {
    "Embedding": {"scale": 0.5},
    "LayerNorm": {"eps": 1e-3},
    "RMSNorm": {"eps": 1e-3},
    "FeedForward": {"dropout": 0.5},
    "MultiHeadAttention": {"dropout": 0.5, "rotary_base": 100.0},
    "EncoderBlock": {"dropout": 0.5, "norm_eps": 1e-3},
    "LatentAttention": {"rotary_base": 100.0},
}


def settings(layer: na.Layer) -> list[Any]:
    """Everything except arrays that the layer and its inner layers hold."""
    found: list[Any] = []
    for value in vars(layer).values():
        if isinstance(value, na.Layer):
            found += settings(value)
        elif not isinstance(value, np.ndarray):
            found.append(value)
    return found


def test_numpy_scalar_on_a_custom_layer_is_not_a_parameter(rng: np.random.Generator) -> None:
    class Scaled(na.Linear):
        pass

    layer = Scaled(2, 3, rng)
    layer.scale = F(2.0)
    assert list(layer.parameters()) == ["w", "b"]


@pytest.mark.parametrize("name", MAKE)
def test_refuses_invalid_size_by_name(name: str) -> None:
    for key in SIZES[name]:
        for size in (0, -1, 2.0, True, "4", float("nan"), [4], np.array([4])):
            with pytest.raises((TypeError, ValueError), match=rf"{key} must be ") as failure:
                MAKE[name](rng=None, **{**SIZES[name], key: size})
            assert MESSAGE.match(str(failure.value))


@pytest.mark.parametrize("name", NUMBERS)
def test_refuses_invalid_number_by_name(name: str) -> None:
    for key in NUMBERS[name]:
        for number in (-1.0, float("nan"), float("inf"), "a", [0.5], 1j, True, np.array([0.5])):
            with pytest.raises((TypeError, ValueError), match=r"(dropout|eps|scale|rotary_base) must be ") as failure:
                MAKE[name](rng=None, **SIZES[name], **{key: number})
            assert MESSAGE.match(str(failure.value))


def test_refuses_seed_in_place_of_generator() -> None:
    with pytest.raises(TypeError, match=r"np\.random\.default_rng\(7\)"):
        na.Linear(2, 3, 7)


@pytest.mark.parametrize("positions", [[0, 1, 2], 1.5, [[0, 1, 2]] * 2, "012", np.ones(4, int)], ids=str)
def test_refuses_positions_that_do_not_fit(positions: Any, rng: np.random.Generator) -> None:
    x = np.zeros((2, 3, 4), np.float32)
    for layer in (
        na.MultiHeadAttention(4, 2, rng, rotary_base=10.0), na.PositionEmbedding("learned", 6, 4, rng),
        na.LatentAttention(4, 2, rng, rank=3, d_nope=2, d_rope=2),
    ):
        with pytest.raises((TypeError, ValueError)) as failure:
            layer.forward(x, positions=positions)
        assert MESSAGE.match(str(failure.value))
