"""A tied head is an untied one whose matrix is the table, turned over."""

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.models.head import head_gradients, run_head


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_table_serves_as_the_matrix_of_a_head(dtype: type) -> None:
    rng = np.random.default_rng(3)
    B, T, V, d_model = 2, 3, 7, 5
    table = rng.standard_normal((V, d_model)).astype(dtype)
    x = rng.standard_normal((T, B, d_model)).astype(dtype).swapaxes(0, 1)  # not contiguous
    dlogits = rng.standard_normal((B, T, V)).astype(dtype)
    head = na.Linear(d_model, V, None, bias=False, dtype=dtype)
    head.w[...] = table.T

    tied, tied_cache = run_head(x, table, None)
    untied, untied_cache = run_head(x, table, head)
    rounding = 1e-5 if dtype is np.float32 else 1e-13
    assert tied.shape == (B, T, V)
    assert tied.dtype == dtype
    np.testing.assert_allclose(tied, untied, rtol=0, atol=rounding)

    of_table, (dx, dtable) = run(head_gradients(dlogits, tied_cache, table, None))
    of_head, (dx_untied, nothing) = run(head_gradients(dlogits, untied_cache, table, head))
    assert of_table == {}
    assert list(of_head) == ["head.w"]
    np.testing.assert_allclose(dx, dx_untied, rtol=0, atol=rounding)
    np.testing.assert_allclose(dtable, of_head["head.w"].T, rtol=0, atol=rounding)
    assert nothing.shape == table.shape
    assert not nothing.any()  # the embedding has something to add to all the same


def run(stream):
    """All that a stream yields, as a dict, and what it returns."""
    yielded = {}
    while True:
        try:
            name, gradient = next(stream)
        except StopIteration as end:
            return yielded, end.value
        yielded[name] = gradient
