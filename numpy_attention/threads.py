"""Lent threads: a caller lends its free threads, and an op deep inside the call divides its work among them.

    with lend(run_all, threads):         training/parallel.py, for a batch that cannot be cut: one long text
        model.loss(...)
            share(work, items)           ops/tiled_attention.py: the heads are independent

Only the thread that called `lend` can use the lent threads. An op that runs on one of these threads finds no lent
threads itself, so there is no deadlock.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

Work = Callable[[Any], None]
RunAll = Callable[[Work, Iterable[Any]], None]  # does the work for every item and returns after all items


class _OfThisThread(threading.local):
    """Each thread has its own value. A context variable would not do: a thread may start with a copied context."""

    run_all: RunAll | None = None
    threads: int = 1


_here = _OfThisThread()


@contextmanager
def lend(run_all: RunAll, threads: int) -> Iterator[None]:
    """Inside this context `share` uses `run_all`, which has `threads` threads."""
    before = _here.run_all, _here.threads
    _here.run_all, _here.threads = run_all, threads
    try:
        yield
    finally:
        _here.run_all, _here.threads = before


def share(work: Work, items: Iterable[Any]) -> None:
    """Do the work for every item: on the lent threads if there are any, otherwise one item after the other.

    The work for one item must not read or write what another item writes.
    """
    items = list(items)
    if _here.run_all is not None and len(items) > 1:
        _here.run_all(work, items)
        return
    for item in items:  # a single item may use all threads of BLAS
        work(item)


def lent_threads() -> int:
    """The number of threads that `share` uses."""
    return _here.threads
