"""Threads: how many BLAS uses, and threads that a caller lends to an op or an optimizer.

BLAS divides large matrix products among its own threads. On a busy machine these threads wait for each other longer
than they compute. So BLAS uses one thread if ours share the work (Chapter 30) and for each next token (Chapter 23).

A batch of one long text cannot be cut. So `Workers.lent` lends our threads, and tiled attention shares its heads among
them; in a large step, Adam shares its pieces. Only the thread that called `lend` can use them: there is no deadlock.
"""

import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

_lent = threading.local()  # a context variable would not do: a thread may start with a copied context


@contextmanager
def lend(pool: Any, threads: int) -> Iterator[None]:
    """Inside this context `share` uses the pool, which has `threads` threads."""
    _lent.pool, _lent.threads = pool, threads
    try:
        yield
    finally:
        del _lent.pool, _lent.threads


def lent_threads() -> int:
    """The number of threads that `share` uses."""
    return getattr(_lent, "threads", 1)


def share(work: Callable[[Any], None], items: Iterable[Any]) -> None:
    """Do the work for every item, on the lent threads if there are any; no item may need what another item writes."""
    items = list(items)
    alone = lent_threads() == 1 or len(items) == 1  # a single item may use all threads of BLAS
    with nullcontext() if alone else blas_threads(1):
        list(map(work, items) if alone else _lent.pool.map(work, items))


def blas_threads(count: int) -> AbstractContextManager[Any]:
    """Inside this context BLAS uses at most `count` threads in the whole process, if threadpoolctl is installed."""
    count = at_most(count, "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS")
    return controller().limit(limits=count, user_api="blas") if controller() else nullcontext()


def at_most(count: int, *names: str) -> int:
    """The count, or less if one of these variables of the environment asks for fewer threads."""
    return min([count, *(int(text) for name in names if (text := os.environ.get(name, "")).isdecimal() and int(text))])


@functools.cache
def controller() -> Any:
    """The controller of the loaded libraries, or None; finding them takes milliseconds, so the result is cached."""
    found = importlib.util.find_spec("threadpoolctl")
    return importlib.import_module("threadpoolctl").ThreadpoolController() if found else None
