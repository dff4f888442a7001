"""Threads that are lent: whoever has some to spare says so, and who computes far below can share work among them.

    with lend(run_all, threads):         runs/parallel.py, for what is not cut into shards: one long text
        model.loss(...)
            share(work, items)           ops/tiled_attention.py: the heads need nothing of each other
        model.generate(...)
            share(work, items)           models/generate.py: nor do the texts that are written

What is lent is seen in the thread that it was lent to, and in no other: an op that runs on one of the threads
themselves finds none, and nobody waits for a thread that waits for him.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy_attention.errors import InputError

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

Work = Callable[[Any], None]
RunAll = Callable[[Work, Iterable[Any]], None]  # does the work for every item, and comes back when all is done


class Lent(NamedTuple):
    """Threads, by what gives them work, and how many they are."""

    run_all: RunAll
    threads: int


_lent: ContextVar[Lent | None] = ContextVar("lent", default=None)


def started(count: int) -> "ThreadPoolExecutor":
    """A pool whose threads have all begun, so that none is found missing in the middle of the work.

    Raises: InputError where the system gives no more threads.
    """
    from concurrent.futures import ThreadPoolExecutor  # here, that `import numpy_attention` stays quick

    pool, all_here = ThreadPoolExecutor(count), threading.Barrier(count)
    try:
        list(pool.map(lambda _: all_here.wait(), range(count)))
    except RuntimeError:
        pool.shutdown(wait=False)
        raise InputError(f"cannot start {count} threads: the system allows no more; --workers 1 needs none") from None
    finally:
        all_here.abort()  # nobody waits for one that does not come
    return pool


@contextmanager
def lend(run_all: RunAll, threads: int) -> Iterator[None]:
    """Within it `share` uses `run_all`, behind which there are so many threads."""
    before = _lent.set(Lent(run_all, threads))
    try:
        yield
    finally:
        _lent.reset(before)


def share(work: Work, items: Iterable[Any]) -> None:
    """Do the work for every item: on the threads that were lent, else one item after the other.

    Each item writes where no other reads or writes, so that it does not matter who comes first.
    """
    lent, items = _lent.get(), list(items)
    if lent is not None and len(items) > 1:
        lent.run_all(work, items)
        return
    for item in items:  # a single one keeps what was lent, for what it may share itself
        work(item)


def shares(count: int) -> list[slice]:
    """`count` things in a row, cut into as many parts of nearly equal size as there are threads for `share`."""
    lent = _lent.get()
    parts = 1 if lent is None else max(1, min(lent.threads, count))
    return [slice(i * count // parts, (i + 1) * count // parts) for i in range(parts)]
