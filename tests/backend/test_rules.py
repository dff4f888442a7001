"""The stand-in follows CuPy's rules: each planted mistake works with NumPy arrays and is refused on the device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.backend.devices import waits
from tests.backend.strict_array import StrictArray, unwrap

X = np.random.default_rng(0).standard_normal((3, 4))
IDS = np.array([2, 0, 2])
MASK = X > 0.0


def masked_on_the_host(x: Any, ids: Any, mask: Any) -> Any:
    y = x.copy()
    np.copyto(y, -np.inf, where=np.ones((3, 4), dtype=bool))
    return y


def chosen_by_a_host_mask(x: Any, ids: Any, mask: Any) -> Any:
    return np.where(np.tri(3, 4, dtype=bool), x, 0.0)


def dropped_by_a_host_draw(x: Any, ids: Any, mask: Any) -> Any:
    return x * (np.random.default_rng(0).random(x.shape) < 0.5)


def a_buffer_on_the_host(x: Any, ids: Any, mask: Any) -> Any:
    total = np.zeros(x.shape)
    total += x
    return total


def written_into_a_host_array(x: Any, ids: Any, mask: Any) -> Any:
    y = np.empty((3, 4))
    y[:, :2] = x[:, :2]
    return y


def a_host_array_written_into_the_device(x: Any, ids: Any, mask: Any) -> Any:
    y = np.zeros_like(x)
    y[0] = np.arange(4.0)
    return y


def a_list_added(x: Any, ids: Any, mask: Any) -> Any:
    return np.add(x, [1.0, 2.0, 3.0, 4.0])


def a_list_chosen(x: Any, ids: Any, mask: Any) -> Any:
    return np.where(mask, x, [1.0, 2.0, 3.0, 4.0])


def indexed_by_a_list(x: Any, ids: Any, mask: Any) -> Any:
    return x[[0, 2]]


def indexed_by_host_ids(x: Any, ids: Any, mask: Any) -> Any:
    return x[IDS]


def a_host_array_indexed(x: Any, ids: Any, mask: Any) -> Any:
    return X[ids]


def an_index_outside(x: Any, ids: Any, mask: Any) -> Any:
    return x[ids - 1]  # -1 is a valid row in NumPy


def an_index_outside_taken(x: Any, ids: Any, mask: Any) -> Any:
    return np.take_along_axis(x, ids[:, None] - 1, axis=1)


def one_row_written_twice(x: Any, ids: Any, mask: Any) -> Any:
    y = np.zeros_like(x)
    y[ids] += x
    return y


def a_ufunc_with_where(x: Any, ids: Any, mask: Any) -> Any:
    return np.exp(x, where=mask, out=np.zeros_like(x))


def a_sum_with_where(x: Any, ids: Any, mask: Any) -> Any:
    return x.sum(axis=-1, where=mask)


def a_maximum_with_initial(x: Any, ids: Any, mask: Any) -> Any:
    return np.max(x, axis=-1, initial=-1.0)


def the_largest_by_reduce(x: Any, ids: Any, mask: Any) -> Any:
    return np.maximum.reduce(x, axis=-1)


def clipped_by_keywords(x: Any, ids: Any, mask: Any) -> Any:
    return np.clip(x, min=-1.0, max=1.0)


def a_function_that_cupy_does_not_have(x: Any, ids: Any, mask: Any) -> Any:
    return np.vecdot(x, x)


def a_product_into_an_array(x: Any, ids: Any, mask: Any) -> Any:
    return np.matmul(x, x.T, out=np.empty_like(x, shape=(3, 3)))


def full_like_the_wrong_way(x: Any, ids: Any, mask: Any) -> Any:
    return np.full((2, 2), 1.0, like=x)


def an_array_without_axes_made_like_another(x: Any, ids: Any, mask: Any) -> Any:
    return np.zeros_like(x, shape=())


def made_a_host_array_implicitly(x: Any, ids: Any, mask: Any) -> Any:
    return np.asarray(x)


def shuffled_by_the_host(x: Any, ids: Any, mask: Any) -> Any:
    return np.random.default_rng(0).permutation(x)


def a_stride_trick(x: Any, ids: Any, mask: Any) -> Any:
    return np.lib.stride_tricks.as_strided(x, shape=(2, 2))


def joined_with_a_host_array(x: Any, ids: Any, mask: Any) -> Any:
    return np.concatenate([x, np.zeros((1, 4))])


def a_method_that_cupy_does_not_have(x: Any, ids: Any, mask: Any) -> Any:
    return x.setflags(write=True)


REFUSED: list[Callable[..., Any]] = [
    value for name, value in list(globals().items())
    if not name.startswith("_") and getattr(value, "__module__", "") == __name__  # not __annotate__
]


if np.lib.NumpyVersion(np.__version__) < "2.1.0":  # older versions of NumPy refuse these keywords too
    REFUSED.remove(clipped_by_keywords)


@pytest.mark.parametrize("mistake", REFUSED, ids=lambda mistake: mistake.__name__)
def test_stand_in_refuses_a_planted_mistake(mistake: Callable[..., Any]) -> None:
    mistake(X.copy(), IDS, MASK)  # NumPy accepts it
    with pytest.raises((TypeError, IndexError, AttributeError)):
        mistake(StrictArray(X), StrictArray(IDS), StrictArray(MASK))


READS: dict[str, Callable[[Any, Any], Any]] = {
    "float in the loop": lambda x, mask: float(x.sum()),
    "item": lambda x, mask: x.sum().item(),
    "tolist": lambda x, mask: x.tolist(),
    "a branch on a value": lambda x, mask: 1 if x.max() > 0.0 else 0,
    "int": lambda x, mask: int(mask.sum()),
    "a boolean index": lambda x, mask: x[mask],
    "flatnonzero": lambda x, mask: np.flatnonzero(mask),
    "back to the host": lambda x, mask: x.get() if isinstance(x, StrictArray) else x,
    "range over a value": lambda x, mask: list(range(mask.sum())),
    "printing": lambda x, mask: f"{x}",
}


@pytest.mark.parametrize("name", READS)
def test_reading_a_value_counts_as_a_wait(name: str) -> None:
    expected = READS[name](X, MASK)
    with waits() as found:
        seen = READS[name](StrictArray(X), StrictArray(MASK))
    assert len(found) == 1
    if name != "printing":
        np.testing.assert_array_equal(unwrap(seen), expected)


CORRECT: dict[str, Callable[[Any, Any, Any], Any]] = {
    "arithmetic": lambda x, ids, mask: 2.0 * x - x / 3.0 + x @ x.T[:, :1] ** 2,
    "in place": lambda x, ids, mask: np.exp(x, out=np.empty_like(x)),
    "rows by ids": lambda x, ids, mask: x[ids],
    "a sum over repeated ids": lambda x, ids, mask: _added_at(x, ids),
    "one element a row": lambda x, ids, mask: x[np.arange(3, like=ids), ids],
    "along an axis": lambda x, ids, mask: np.take_along_axis(x, ids[:, None], axis=1),
    "masked": lambda x, ids, mask: np.where(mask, x, 0.0),
    "a host draw that was moved": lambda x, ids, mask: x * np.asarray(np.random.default_rng(0).random((3, 4)), like=x),
    "joined": lambda x, ids, mask: np.concatenate([x, np.zeros_like(x)], axis=1),
    "a reduction": lambda x, ids, mask: x.max(axis=-1, keepdims=True),
    "stacked scalars": lambda x, ids, mask: np.stack([x.sum(), x.max()]),
}


def _added_at(x: Any, ids: Any) -> Any:
    y = np.zeros_like(x)
    np.add.at(y, ids, x)
    return y


@pytest.mark.parametrize("name", CORRECT)
def test_correct_code_equals_numpy_and_never_waits(name: str) -> None:
    with waits() as found:
        y = CORRECT[name](StrictArray(X), StrictArray(IDS), StrictArray(MASK))
    assert not found
    assert isinstance(y, StrictArray)
    np.testing.assert_array_equal(unwrap(y), CORRECT[name](X, IDS, MASK))


def test_reduction_returns_a_0d_array() -> None:
    total = StrictArray(X).sum()
    assert isinstance(total, StrictArray)
    assert total.shape == ()


def test_in_place_operations_change_the_array() -> None:
    x = StrictArray(X)
    y, row = x, x[1]
    y += 1.0
    row *= 0.0
    assert y is x
    np.testing.assert_array_equal(x.get(), np.where(np.arange(3)[:, None] == 1, 0.0, X + 1.0))
