"""Chapter 6, appendix: each mistake with attention's arguments is named, with the fix that is likely."""

from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.ops.attention_arguments import broadcasts_to

Q, K, V = (2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)


@pytest.mark.parametrize("op", [na.scaled_dot_product_attention, na.tiled_attention])
@pytest.mark.parametrize(("changed", "message"), [
    ({"q": (8,)}, r"q must be \(\.\.\., T_q, d_k\)"),
    ({"k": (2, 4, 8, 5)}, "did you pass k already transposed"),
    ({"k": (2, 4, 5, 7)}, "q and k are compared, so they share d_k"),
    ({"k": (2, 4, 0, 8)}, "to hide keys use a mask"),
    ({"v": (2, 4, 7, 6)}, "every key has one value"),
    ({"v": (4, 5, 6)}, "every key has one value"),
    ({"k": (2, 3, 5, 8), "v": (2, 3, 5, 6)}, "grouped heads need H_q % H_kv == 0, and 4 is no multiple of 3"),
    ({"k": (3, 4, 5, 8), "v": (3, 4, 5, 6)}, "q and k must come from the same batch"),
    ({"q": (4, 3, 8), "k": (2, 5, 8), "v": (2, 5, 6)}, "with three axes the first is the batch"),
    ({"mask": (5, 3)}, "did you pass it transposed"),
    ({"mask": (2, 5)}, r"for one row of keys a sequence, .* mask\[:, None, None, :\]"),
    ({"mask": (1, 2, 4, 3, 5)}, "it has an axis too many"),
    ({"mask": (3, 4)}, "the last two axes are queries and keys"),
], ids=str)
def test_shapes_that_almost_fit(op: Any, changed: dict[str, tuple[int, ...]], message: str) -> None:
    shapes = {"q": Q, "k": K, "v": V, **changed}
    arrays = {name: np.ones(shape, bool if name == "mask" else np.float32) for name, shape in shapes.items()}
    with pytest.raises(ValueError, match=message) as refusal:
        op(**arrays)
    assert str(refusal.value).startswith(f"{op.__name__}: ")


@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_a_mask_of_numbers_is_not_guessed_at(dtype: type) -> None:
    q, k, v = np.ones(Q), np.ones(K), np.ones(V)
    with pytest.raises(TypeError, match=r"1 = may look: .*; 1 = hidden: mask_from_blocked\(mask\); 0 / -inf"):
        na.scaled_dot_product_attention(q, k, v, mask=np.ones((3, 5), dtype))


def test_dtypes_do_not_mix() -> None:
    with pytest.raises(TypeError, match="v must be float32 as q is, got float64"):
        na.scaled_dot_product_attention(np.ones(Q, np.float32), np.ones(K, np.float32), np.ones(V))


def test_a_bias_is_checked_as_a_mask_is() -> None:
    with pytest.raises(ValueError, match=r"bias must be broadcastable to .* = \(2, 4, 3, 5\), got \(3, 4\)"):
        na.scaled_dot_product_attention(np.ones(Q), np.ones(K), np.ones(V), bias=np.ones((3, 4)))


@pytest.mark.parametrize(("shape", "other", "fits"), [
    ((), (3, 5), True), ((5,), (3, 5), True), ((3, 1), (3, 5), True), ((1, 1), (3, 5), True),
    ((3,), (3, 5), False), ((2, 3, 5), (3, 5), False), ((3, 5), (1, 5), False), ((1, 3, 5), (3, 5), False),
])
def test_broadcasting_that_widens_neither_side(shape: tuple[int, ...], other: tuple[int, ...], fits: bool) -> None:
    assert broadcasts_to(shape, other) == fits
