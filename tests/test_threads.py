"""Lent threads: only the lender uses them, and results are the same with and without them."""

import contextvars
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.threads import Work, lend, share
from numpy_attention.training.parallel import Workers


def doubled(items: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}

    def work(i: int) -> None:
        found[i] = 2 * i

    share(work, items)
    return found


def test_lent_threads_are_used_only_inside_the_context() -> None:
    calls: list[list[int]] = []

    def run_all(work: Work, items: Iterable[Any]) -> None:
        calls.append(list(items))
        for item in reversed(calls[-1]):
            work(item)

    def doubled_and_failed() -> None:
        with lend(run_all, 2):
            assert list(doubled(range(3))) == [2, 1, 0]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        doubled_and_failed()
    assert doubled(range(2)) == {0: 0, 1: 2}
    assert calls == [[0, 1, 2]]


def test_other_threads_do_not_use_lent_threads() -> None:
    def never(work: Work, items: Iterable[Any]) -> None:
        raise AssertionError("lent to another thread")

    with ThreadPoolExecutor(1) as pool, lend(never, 2):
        assert pool.submit(doubled, range(2)).result() == {0: 0, 1: 2}
        # free-threaded Python copies the context into every new thread
        copied = contextvars.copy_context().run
        assert pool.submit(copied, doubled, range(2)).result() == {0: 0, 1: 2}


def test_lent_workers_share_the_items_and_raise_errors_in_the_caller() -> None:
    seen: set[int] = set()
    together = threading.Barrier(2, timeout=20)

    def work(i: int) -> None:
        seen.add(threading.get_ident())
        together.wait()  # passes only if two threads wait at the same time

    def fail(i: int) -> None:
        raise FloatingPointError(str(i))

    with Workers(2) as workers:
        with workers.lent():
            share(work, range(4))
        assert len(seen) == 2
        assert threading.get_ident() not in seen
        with workers.lent(), pytest.raises(FloatingPointError, match="0"):
            share(fail, range(2))


def test_attention_is_identical_for_any_number_of_threads(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numpy_attention.ops.tiles.FEW_SCORES", 0)
    q, k, v, dy = rng.standard_normal((4, 1, 5, 300, 8)).astype(np.float32)

    def run() -> list[np.ndarray]:
        y, cache = na.tiled_attention(q, k, v, causal=True, block_size=64)
        return [y, *na.tiled_attention_backward(dy, cache)]

    alone = run()
    for count in (1, 2, 3):
        with Workers(count) as workers, workers.lent():
            for ours, theirs in zip(run(), alone, strict=True):
                np.testing.assert_array_equal(ours, theirs)
