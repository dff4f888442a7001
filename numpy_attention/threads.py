"""Lending threads: a caller lends its free threads, and an op deep inside the call divides its work among them.

    with lend(run_all, threads):         training/parallel.py, for work that is not cut into shards: one long text
        model.loss(...)
            share(work, items)           ops/tiled_attention.py: the heads are independent
        model.generate(...)
            share(work, items)           models/generate.py: the generated texts are independent, and each piece of a
                                         long text waits, in each layer, for the piece before it
            step = paced(trial)          models/generate.py: the next token of one text is too short to be divided; only
            step(work)                   the threads of BLAS can help

Only the thread that called `lend` can use the lent threads. An op that runs on one of these threads finds no lent
threads itself, so there is no deadlock.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy_attention.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Work = Callable[[Any], None]
RunAll = Callable[[Work, Iterable[Any]], None]  # does the work for every item and returns after all items
Step = Callable[[], Any]
Pace = Callable[[Step], Callable[[Step], Any]]  # see `paced`


class Lent(NamedTuple):
    """The lent threads: a function that gives them work, their number, and what `paced` does."""

    run_all: RunAll
    threads: int
    pace: Pace | None


class _OfThisThread(threading.local):
    """Each thread has its own value. A context variable would not do: a thread may start with a copied context."""

    lent: Lent | None = None


_here = _OfThisThread()


def started(count: int) -> "ThreadPoolExecutor":
    """A pool whose threads have all started: if threads are missing, this fails now and not in the middle of the work.

    Raises: InputError if the system cannot start so many threads.
    """
    from concurrent.futures import ThreadPoolExecutor  # imported here to keep `import numpy_attention` fast

    pool, all_here = ThreadPoolExecutor(count), threading.Barrier(count)
    try:
        list(pool.map(lambda _: all_here.wait(), range(count)))
    except RuntimeError:
        pool.shutdown(wait=False)
        raise InputError(f"cannot start {count} threads: the system allows no more; use --workers 1") from None
    finally:
        all_here.abort()  # no thread waits for a thread that did not start
    return pool


@contextmanager
def lend(run_all: RunAll, threads: int, pace: Pace | None = None) -> Iterator[None]:
    """Inside this context `share` uses `run_all`, which has `threads` threads, and `paced` uses `pace`."""
    before, _here.lent = _here.lent, Lent(run_all, threads, pace)
    try:
        yield
    finally:
        _here.lent = before


def share(work: Work, items: Iterable[Any]) -> None:
    """Do the work for every item: on the lent threads if there are any, otherwise one item after the other.

    Items start in their order. The work for one item must not read or write what another item writes, unless it waits
    for the items before it (`InOrder`).
    """
    lent, items = _here.lent, list(items)
    if lent is not None and len(items) > 1:
        lent.run_all(work, items)
        return
    for item in items:  # a single item may use the lent threads for its own work
        work(item)


def shares(count: int) -> list[slice]:
    """Slices that cut `count` items into parts of nearly equal size, one part for each thread of `share`."""
    lent = _here.lent
    parts = 1 if lent is None else max(1, min(lent.threads, count))
    return [slice(i * count // parts, (i + 1) * count // parts) for i in range(parts)]


def paced(trial: Step) -> Callable[[Step], Any]:
    """A function that does short steps of the same kind, one after the other; the lender may time them.

    `trial` does a step of this kind that changes nothing, and returns an array. If several threads of BLAS change a bit
    of the array, they are not used.
    """
    pace = _here.lent and _here.lent.pace
    return pace(trial) if pace else lambda step: step()


class InOrder:
    """`count` workers do the same steps; each does a step after the worker before it has done this step.

        order.wait(i)     the step of worker i begins after the step of worker i - 1
        order.done(i)     worker i + 1 may now do this step

    So the results do not depend on the speed of the threads. If the workers are the items of `share`, which starts
    them in their order, each waits only for workers that have started.
    """

    def __init__(self, count: int) -> None:
        # messages to worker i + 1: True for every step of worker i, False after `stop`
        self._done: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]

    def wait(self, i: int) -> None:
        """Wait until worker i - 1 has done one more step.

        Raises: RuntimeError after `stop`.
        """
        if i and not self._done[i - 1].get():
            raise RuntimeError("another thread has failed")

    def done(self, i: int) -> None:
        """Worker i has done a step."""
        self._done[i].put(True)

    def stop(self) -> None:
        """After a worker has failed, let all waiting workers fail, too."""
        for done in self._done:
            done.put(False)
