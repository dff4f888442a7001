"""Chapter 12, appendix: the loss of Chapter 11 on the product of Chapter 1, for any block size."""

import tracemalloc
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.pieces import PIECE


def drawn(rng: np.random.Generator, lead: tuple[int, ...], V: int, d: int) -> tuple[np.ndarray, ...]:
    """x with leading axes `lead`, a table, and targets; a third of the targets do not count."""
    targets = np.where(rng.random(lead) < 0.3, -100, rng.integers(0, V, lead))
    return rng.standard_normal((*lead, d)), rng.standard_normal((V, d)), targets


def whole(x: np.ndarray, table: np.ndarray, targets: np.ndarray, dloss: float, **options: Any) -> tuple[Any, ...]:
    """Loss, dx and dtable, computed from all logits at once."""
    logits, cache = na.linear(x, table.T)
    loss, of_loss = na.cross_entropy(logits, targets, **options)
    dx, dw, _ = na.linear_backward(na.cross_entropy_backward(dloss, of_loss), cache)
    return loss, dx, dw.T


def by_rows(x: np.ndarray, table: np.ndarray, targets: np.ndarray, dloss: float, **options: Any) -> tuple[Any, ...]:
    loss, cache = na.linear_cross_entropy(x, table, targets, **options)
    return loss, *na.linear_cross_entropy_backward(dloss, cache)


@pytest.mark.parametrize("block_size", [1, 3, 4, 11, 12, 13, 1000])
@pytest.mark.parametrize("options", [{}, {"label_smoothing": 0.2}, {"ignore_index": 3}], ids=str)
def test_loss_and_gradients_equal_those_of_all_logits_for_any_block_size(
    block_size: int, options: dict[str, Any], rng: np.random.Generator
) -> None:
    x, table, targets = drawn(rng, (3, 4), V=7, d=5)
    targets[targets == -100] = options.get("ignore_index", -100)
    expected = whole(x, table, targets, -0.7, **options)
    found = by_rows(x, table, targets, -0.7, block_size=block_size, **options)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)


def test_agrees_to_float64_round_off_with_a_real_vocabulary(rng: np.random.Generator) -> None:
    x, table, targets = drawn(rng, (2, 33), V=50_257, d=6)
    for one, other in zip(by_rows(x, table, targets, 1.3, block_size=10), whole(x, table, targets, 1.3), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_mean_is_over_the_places_of_all_blocks(rng: np.random.Generator) -> None:
    """The blocks have unequal numbers of counted places: one block has none, the last block is short."""
    x, table, targets = drawn(rng, (8,), V=7, d=5)
    targets[:] = [4, -100, 2, -100, -100, -100, 6, 1]
    loss, dx, _ = by_rows(x, table, targets, 1.0, block_size=3)
    logits = x @ table.T
    losses = np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(8), np.maximum(targets, 0)]
    np.testing.assert_allclose(loss, losses[targets >= 0].sum() / 4)
    assert not dx[targets < 0].any()
    assert np.all(np.abs(dx[targets >= 0]).sum(axis=1) > 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_confident_wrong_prediction_has_finite_loss(dtype: type) -> None:
    x, table = np.array([[100.0, -100.0]], dtype), np.array([[100.0, 0.0], [0.0, 0.0], [0.0, 100.0]], dtype)
    loss, dx, dtable = by_rows(x, table, np.array([2]), 1.0)
    assert loss == 2e4
    np.testing.assert_array_equal(dx, [[100.0, -100.0]])
    np.testing.assert_array_equal(dtable, [[100.0, -100.0], [0.0, 0.0], [-100.0, 100.0]])


def test_frozen_table_gets_no_gradient_and_dx_is_unchanged(rng: np.random.Generator) -> None:
    arrays = drawn(rng, (6,), V=7, d=5)
    loss, dx, dtable = by_rows(*arrays, 1.0, block_size=4)
    loss_frozen, dx_frozen, nothing = by_rows(*arrays, 1.0, block_size=4, frozen=True)
    assert nothing is None
    assert dtable is not None
    assert loss == loss_frozen
    np.testing.assert_array_equal(dx, dx_frozen)


def test_loss_of_zero_rows_is_zero() -> None:
    loss, dx, dtable = by_rows(np.ones((2, 0, 3)), np.ones((5, 3)), np.ones((2, 0), int), 1.0)
    assert loss == 0.0
    assert dx.shape == (2, 0, 3)
    assert dtable.shape == (5, 3)
    assert not dtable.any()


def test_memory_holds_the_logits_of_one_block(rng: np.random.Generator) -> None:
    """If the table learns, also two arrays of its size: its gradient, and what one block adds to it."""
    N, V, d, block_size = 512, 4 * PIECE // 8, 8, 32
    x, table, targets = (array.astype(dtype) for array, dtype in zip(drawn(rng, (N,), V, d), "ffi", strict=True))
    of_block, of_table = 4 * block_size * V, 4 * V * d

    def peak(frozen: bool) -> int:
        tracemalloc.start()
        by_rows(x, table, targets, 1.0, block_size=block_size, frozen=frozen)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    assert peak(frozen=True) < 1.1 * of_block
    assert peak(frozen=False) < 1.1 * (of_block + 2 * of_table) < 0.15 * (4 * N * V)


@pytest.mark.parametrize(("changes", "message"), [
    ({"table": np.ones((5, 7))}, r"table must be \(V, d\) with d = 5 as in x .* did you pass table transposed\?"),
    ({"table": np.ones((7, 4))}, r"got \(7, 4\); one row for each token of the vocabulary"),
    ({"x": np.ones(())}, r"x must be \(\.\.\., d\), got \(\)"),
    ({"table": np.ones((0, 5))}, r"table must be \(V, d\) with V at least 1, got \(0, 5\)"),
    ({"targets": np.array([1, 7])}, r"in \[0, 7\), got 7; is padding marked with ignore_index = -100\?"),
    ({"targets": np.array([[1, 2]])}, r"targets must be .* leading axes \(2,\) as in x .* one for each row of x"),
    ({"label_smoothing": -0.1}, r"label_smoothing must be in \[0, 1\], got -0.1"),
    ({"block_size": 0}, "block_size must be at least 1, got 0"),
], ids=str)
def test_refuses_invalid_arguments(changes: dict[str, Any], message: str) -> None:
    arguments = {"x": np.ones((2, 5)), "table": np.ones((7, 5)), "targets": np.array([1, 2]), **changes}
    with pytest.raises(ValueError, match=message):
        na.linear_cross_entropy(**arguments)
