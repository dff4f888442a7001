"""Lent threads: only the lender uses them, and results are the same with and without them."""

import contextvars
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.threads import InOrder, Work, lend, share, shares, started
from numpy_attention.training.parallel import Workers, all_cores


def doubled(items: Iterable[int]) -> dict[int, int]:
    found: dict[int, int] = {}

    def work(i: int) -> None:
        found[i] = 2 * i

    share(work, items)
    return found


def test_without_lent_threads_items_run_in_order() -> None:
    assert list(doubled(range(5)).items()) == [(i, 2 * i) for i in range(5)]


def test_lent_threads_are_used_only_inside_the_context() -> None:
    calls: list[list[int]] = []

    def run_all(work: Work, items: Iterable[Any]) -> None:
        calls.append(list(items))
        for item in reversed(calls[-1]):
            work(item)

    def doubled_and_failed() -> None:
        with lend(run_all, 2):
            assert doubled(range(3)) == {0: 0, 1: 2, 2: 4}
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


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_attention_is_identical_for_any_number_of_threads(
    rng: np.random.Generator, dropout: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("numpy_attention.ops.tiles.FEW_SCORES", 0)
    q, k, v, dy = rng.standard_normal((4, 1, 5, 300, 8)).astype(np.float32)

    def run() -> list[np.ndarray]:
        again = np.random.default_rng(3)
        y, cache = na.tiled_attention(q, k, v, causal=True, dropout=dropout, rng=again, block_size=64)
        return [y, *na.tiled_attention_backward(dy, cache)]

    alone = run()
    for count in (1, 2, 3):
        with Workers(count) as workers, workers.lent():
            for ours, theirs in zip(run(), alone, strict=True):
                np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("granted", range(3))
def test_failed_start_raises_an_error_and_ends_the_started_threads(
    granted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[threading.Thread] = []
    start = threading.Thread.start

    def begin(thread: threading.Thread) -> None:
        if len(begun) == granted:
            raise RuntimeError("can't start new thread")
        begun.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", begin)
    with pytest.raises(InputError, match=r"cannot start 3 threads: .*; use --workers 1"):
        started(3)
    for thread in begun:
        thread.join(10)
    assert not any(thread.is_alive() for thread in begun)


def test_threads_start_before_there_is_work() -> None:
    before = threading.active_count()
    with started(3):
        assert threading.active_count() == before + 3


def test_all_cores_uses_one_core_if_no_thread_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr("numpy_attention.training.parallel.usable_cores", lambda: 2)
    monkeypatch.setattr("numpy_attention.training.parallel.blas_can_be_limited", lambda: True)
    with all_cores():
        assert len(shares(2)) == 2
    monkeypatch.setattr(threading.Thread, "start", none)
    with all_cores():
        assert len(shares(2)) == 1
        assert list(doubled(range(3))) == [0, 1, 2]


def test_each_worker_does_a_step_after_the_worker_before() -> None:
    order, steps, pauses = InOrder(3), [], np.random.default_rng(0)

    def work(i: int) -> None:
        for step in range(4):
            order.wait(i)
            time.sleep(float(waits[i, step]))
            steps.append((step, i))
            order.done(i)

    for _ in range(5):
        steps.clear()
        waits = pauses.uniform(0, 0.003, (3, 4))
        with Workers(3) as workers, workers.lent():
            share(work, range(3))
        assert all(steps.index((step, i)) > steps.index((step, i - 1)) for step in range(4) for i in (1, 2))


def test_stopped_workers_fail() -> None:
    order = InOrder(3)
    order.wait(0)  # returns at once: no worker comes before the first one
    order.done(0)
    order.stop()
    order.wait(1)  # this step was done before the stop
    for i in (1, 2):
        with pytest.raises(RuntimeError, match="another thread has failed"):
            order.wait(i)
