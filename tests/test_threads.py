"""Lent threads: only the lender uses them, and results are the same with and without them."""

import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.threads import lend, share
from numpy_attention.training.c30_parallel import Workers


def threads_of_work(items: int = 3) -> set[int]:
    """The threads that do the work of `share`."""
    found: set[int] = set()
    share(lambda _: found.add(threading.get_ident()), range(items))
    return found


def test_lent_threads_are_used_only_inside_the_context_and_by_the_lender() -> None:
    me = threading.get_ident()
    with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as other:
        with lend(pool, 2):
            assert me not in threads_of_work()
            assert threads_of_work(items=1) == {me}
            for run in (threads_of_work, lambda: contextvars.copy_context().run(threads_of_work)):
                elsewhere = other.submit(run).result()
                assert len(elsewhere) == 1
                assert me not in elsewhere
        assert threads_of_work() == {me}


def test_lent_workers_share_the_items_and_raise_errors_in_the_caller() -> None:
    together = threading.Barrier(2, timeout=20)

    def fail(i: int) -> None:
        raise FloatingPointError(str(i))

    with Workers(2) as workers, workers.lent():
        share(lambda _: together.wait(), range(4))  # passes only if two threads wait at the same time
        with pytest.raises(FloatingPointError, match="0"):
            share(fail, range(2))


def test_attention_is_identical_for_any_number_of_threads(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numpy_attention.ops.c12a_tiles.FEW_SCORES", 0)
    q, k, v, dy = rng.standard_normal((4, 1, 5, 300, 8)).astype(np.float32)

    def run() -> list[np.ndarray]:
        y, cache = na.tiled_attention(q, k, v, causal=True, block_size=64)
        return [y, *na.tiled_attention_backward(dy, cache)]

    alone = run()
    for count in (1, 2, 3):
        with Workers(count) as workers, workers.lent():
            for ours, theirs in zip(run(), alone, strict=True):
                np.testing.assert_array_equal(ours, theirs)
