"""A tied head equals an untied head whose matrix is the transposed table."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.models.c21b_head import Head


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tied_head_equals_untied_head_with_the_transposed_table(dtype: type) -> None:
    rng = np.random.default_rng(3)
    B, T, V, d_model = 2, 3, 7, 5
    table = rng.standard_normal((V, d_model)).astype(dtype)
    w = np.ascontiguousarray(table.T)
    x = rng.standard_normal((T, B, d_model)).astype(dtype).swapaxes(0, 1)  # not contiguous
    dlogits = rng.standard_normal((B, T, V)).astype(dtype)
    tied, untied = Head(table), Head(w.T)
    rounding = 1e-5 if dtype is np.float32 else 1e-13
    assert tied.forward(x).shape == (B, T, V)
    assert tied.forward(x).dtype == dtype
    np.testing.assert_allclose(tied.forward(x), untied.forward(x), rtol=0, atol=rounding)
    for one, other in zip(tied.backward(dlogits, x), untied.backward(dlogits, x), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=rounding)
    frozen = tied._replace(frozen=True).backward(dlogits, x)
    np.testing.assert_array_equal(frozen[0], tied.backward(dlogits, x)[0])
    assert frozen[1] is None


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("part", ["token_embedding", "head", "blocks"])
def test_any_part_of_a_model_can_be_frozen(tied: bool, part: str, rng: np.random.Generator) -> None:
    model = na.GPT(na.GPTConfig(7, 5, 6, 2, 2, tie_weights=tied), rng, np.float64)
    ids, targets = rng.integers(0, 7, (2, 3, 5))
    of_all = model.backward(model.loss(ids, targets)[1])
    for layer in model.blocks if part == "blocks" else [getattr(model, part)]:
        if layer is not None:
            layer.freeze()
    grads = model.backward(model.loss(ids, targets)[1])
    frozen = {name for name in of_all if name.startswith(part)}
    assert frozen or (tied and part == "head")
    assert grads.keys() == of_all.keys() - frozen
    for name, gradient in grads.items():
        np.testing.assert_allclose(gradient, of_all[name], rtol=0, atol=1e-15)
