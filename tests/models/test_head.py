"""A tied head equals an untied head whose matrix is the transposed table."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.models.c21b_head import Head


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_tied_head_equals_untied_head_with_the_transposed_table(dtype: type) -> None:
    rng = np.random.default_rng(3)
    B, T, V, d_model = 2, 3, 7, 5
    embedding = na.Embedding(V, d_model, rng, dtype=dtype)
    x = rng.standard_normal((T, B, d_model)).astype(dtype).swapaxes(0, 1)  # not contiguous
    dlogits = rng.standard_normal((B, T, V)).astype(dtype)
    head = na.Linear(d_model, V, None, bias=False, dtype=dtype)
    head.w[...] = embedding.table.T
    by_table, by_matrix = Head(embedding, None), Head(embedding, head)

    tied, tied_cache = by_table.forward(x)
    untied, untied_cache = by_matrix.forward(x)
    rounding = 1e-5 if dtype is np.float32 else 1e-13
    assert tied.shape == (B, T, V)
    assert tied.dtype == dtype
    np.testing.assert_allclose(tied, untied, rtol=0, atol=rounding)

    of_table, (dx, dtable) = run(by_table.gradients(dlogits, tied_cache))
    of_head, (dx_untied, zeros) = run(by_matrix.gradients(dlogits, untied_cache))
    assert of_table == {}
    assert list(of_head) == ["head.w"]
    np.testing.assert_allclose(dx, dx_untied, rtol=0, atol=rounding)
    np.testing.assert_allclose(dtable, of_head["head.w"].T, rtol=0, atol=rounding)
    assert zeros.shape == embedding.table.shape
    assert not zeros.any()  # the embedding adds its gradient to this array


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head_frozen", [True, False])
@pytest.mark.parametrize("table_frozen", [True, False])
def test_frozen_arrays_get_no_gradient_and_other_gradients_stay_the_same(
    tied: bool, head_frozen: bool, table_frozen: bool, rng: np.random.Generator
) -> None:
    B, T, V, d_model = 2, 3, 7, 5
    embedding, x = na.Embedding(V, d_model, rng, dtype=np.float64), rng.standard_normal((B, T, d_model))
    dlogits = rng.standard_normal((B, T, V))
    head = None if tied else na.Linear(d_model, V, rng, bias=False, dtype=np.float64)
    scores = Head(embedding, head)
    _, cache = scores.forward(x)
    of_all, (dx_of_all, dtable_of_all) = run(scores.gradients(dlogits, cache))
    if head is not None and head_frozen:
        head.freeze()
    if table_frozen:
        embedding.freeze()
    yielded, (dx, dtable) = run(scores.gradients(dlogits, cache))
    np.testing.assert_array_equal(dx, dx_of_all)
    assert yielded.keys() == (set() if tied or head_frozen else {"head.w"})
    for name, gradient in yielded.items():
        np.testing.assert_array_equal(gradient, of_all[name])
    if table_frozen:
        assert dtable is None
    else:
        np.testing.assert_array_equal(dtable, dtable_of_all)


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


def run(stream):
    """All items that a stream yields, as a dict, and its return value."""
    yielded = {}
    while True:
        try:
            name, gradient = next(stream)
        except StopIteration as end:
            return yielded, end.value
        yielded[name] = gradient
