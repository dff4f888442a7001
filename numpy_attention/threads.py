"""Threads that are lent: whoever has some to spare says so, and an op far below can share its work among them.

    with lend(run_all):                  runs/parallel.py, for a batch that cannot be cut: one long text
        model.loss(...)
            share(work, items)           ops/tiled_attention.py: the heads need nothing of each other

What is lent is seen in the thread that it was lent to, and in no other: an op that runs on one of the threads
themselves finds none, and nobody waits for a thread that waits for him.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

Work = Callable[[Any], None]
RunAll = Callable[[Work, Iterable[Any]], None]  # does the work for every item, and comes back when all is done

_lent: ContextVar[RunAll | None] = ContextVar("lent", default=None)


@contextmanager
def lend(run_all: RunAll) -> Iterator[None]:
    """Within it `share` uses `run_all`."""
    before = _lent.set(run_all)
    try:
        yield
    finally:
        _lent.reset(before)


def share(work: Work, items: Iterable[Any]) -> None:
    """Do the work for every item: on the threads that were lent, else one item after the other.

    Each item writes where no other reads or writes, so that it does not matter who comes first.
    """
    run_all = _lent.get()
    if run_all is not None:
        run_all(work, items)
        return
    for item in items:
        work(item)
