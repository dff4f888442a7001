"""Every op, layer and model in several threads at the same time: no thread disturbs another thread."""

import copy
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck.problem import random_cotangent
from numpy_attention.tutor.compare import same
from numpy_attention.tutor.entry import Entry
from tests.tutor.test_properties import for_entries

pytestmark = pytest.mark.slow
THREADS = 3
# tests/free_threaded.sh runs 1000 rounds: without the interpreter lock, threads run Python code at the same time, too
FEW = 3
ROUNDS = int(os.environ.get("NUMPY_ATTENTION_ROUNDS", FEW))


@pytest.fixture(autouse=True)
def threads_change_often() -> Iterator[None]:
    """With the interpreter lock, a thread would otherwise often finish its op before another thread runs."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_the_same_time(work: Callable[[], None], rounds: int) -> None:
    """All threads do the work in every round, and start each round together; the first error is raised."""
    together, errors = threading.Barrier(THREADS, timeout=60), []

    def all_rounds(_: int) -> None:
        try:
            for _ in range(rounds):
                together.wait()
                work()
        except threading.BrokenBarrierError:  # another thread has failed
            pass
        except BaseException as error:
            errors.append(error)
            together.abort()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(all_rounds, range(THREADS)))
    if errors:
        raise errors[0]


def threads_give_the_results_of_one(entry: Entry, rounds: int) -> None:
    """Forward and backward in all threads on the same inputs, and the backward of a cache that all threads share."""
    case = entry.case()
    forward, backward = case.functions()

    def run() -> tuple[Any, Any]:
        return forward(**case.own_inputs, **copy.deepcopy(case.options))

    y, shared = run()
    dy = random_cotangent((np.asarray(y),), 0)[0]
    grads = backward(dy, shared)
    before = copy.deepcopy((case.inputs, dy, shared))

    def work() -> None:
        own_y, own = run()
        assert same(y, own_y), f"{entry.name}: the forward gives other results in several threads"
        assert same(grads, backward(dy, own)), f"{entry.name}: backward gives other results in several threads"
        assert same(grads, backward(dy, shared)), f"{entry.name}: backward of a shared cache gives other results"

    at_the_same_time(work, rounds)
    assert same(before, (case.inputs, dy, shared)), f"{entry.name}: a thread changed the inputs, dy or the cache"


@for_entries(every_variant=ROUNDS > FEW)
def test_threads_do_not_disturb_each_other(entry: Entry) -> None:
    threads_give_the_results_of_one(entry, ROUNDS)
