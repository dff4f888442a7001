"""Threads: how many BLAS uses, and threads that a caller lends to an op.

BLAS, the library behind NumPy's matrix products, divides large products among its own threads. They wait for each other
after every product, and on a busy machine they wait longer than they compute. So BLAS uses one thread if our threads
share the work (Chapter 31), and for each next token (Chapter 23), whose products take microseconds.

A caller lends its free threads, and an op deep inside the call divides its work among them:

    with lend(run_all, threads):         training/parallel.py, for a batch that cannot be cut: one long text
        model.loss(...)
            share(work, items)           ops/tiled_attention.py: the heads are independent

Only the thread that called `lend` can use the lent threads. An op that runs on one of these threads finds no lent
threads itself, so there is no deadlock.
"""

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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


def single_threaded_blas() -> AbstractContextManager[Any]:
    """Inside this context BLAS uses one thread, if threadpoolctl is installed. The limit belongs to the process."""
    return blas_threads(1)


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Inside this context BLAS uses `count` threads, or the number in the environment if it is less."""
    count, controller = min([count, *asked_threads("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")]), _controller()
    return nullcontext() if controller is None else controller.limit(limits=count, user_api="blas")


def blas_can_be_limited() -> bool:
    """Whether BLAS can be limited to one thread, so that its threads do not compete with ours for the cores."""
    return os.environ.get("OPENBLAS_NUM_THREADS") == "1" or _controller() is not None


def asked_threads(*names: str) -> list[int]:
    """The numbers of threads that these variables of the environment ask for, as far as they are positive integers."""
    asked = (os.environ.get(name, "").split(",")[0].strip() for name in names)  # OMP: "4,2" also limits inner threads
    return [int(text) for text in asked if text.isdecimal() and int(text) > 0]


@functools.cache
def _controller() -> Any:
    """The controller of this process's libraries; finding them takes milliseconds, so the result is cached."""
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl.ThreadpoolController()
