"""Chapter 31. All cores: one batch, several threads

The loss of a batch is a mean over its n counted tokens. Cut the batch into shards that count n_1, ..., n_K of them,
and both the loss and its gradient are the weighted sums of the shards' own:

    loss = sum_i (n_i / n) loss_i            d loss / d p = sum_i (n_i / n) d loss_i / d p

Each shard is one forward and one backward over the same parameters, which nobody writes to meanwhile. Layers keep
nothing between calls, so threads need no locks; NumPy lets go of Python's interpreter lock inside its loops and
matrix products, so they run at once. Weights n_i / n matter: with padding the shards count different numbers
of tokens, and the mean of the shards' means would be another number. The weight of a shard goes in where its backward
begins, as dloss, instead of through every gradient at its end.

Floating-point sums depend on their order. So the shards' gradients are added in the order of the shards, not in that in
which the threads finish, and the same run gives the same bits every time. No thread waits for a whole shard: a backward
gives one gradient after the other, and each is added as soon as the shard before has added the same one.

    shard 0    forward    backward   dw_3 = .    dw_2 = .    dw_1 = .
                                          |           |           |
    shard 1    forward    backward      dw_3 += .   dw_2 += .   dw_1 += .
                                               |           |           |
    shard 2    forward    backward           dw_3 += .   dw_2 += .   dw_1 += .          time ->

BLAS has threads of its own. K workers with K BLAS threads each would fight for K cores, so BLAS is held to one.

A batch of one text cannot be cut. Then the threads are lent: BLAS takes them for the large products, and attention in
tiles (Chapter 12), whose products are small, shares its heads among them. Heads need nothing of each other, so that the
bits are the same however many threads there are.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain, islice
from queue import SimpleQueue
from typing import Any, Self

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.threads import Work, lend, started

Batch = tuple[np.ndarray, ...]
# Seconds a thread waits for the interpreter before it asks for it. Python's 5 ms are long beside a NumPy call of
# 0.05 ms: small models gain a tenth.
SWITCH_INTERVAL = 1e-4

# Parameters times tokens of a step from which on threads gain more than they wait for each other. Measured on two cores
# with models from 16 to 128 wide: about here two threads are as fast as one, at a tenth of it half as fast.
WORTH_THREADS = 30_000_000


def usable_cores() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_workers(batch: int, work: int, cores: int | None = None) -> int:
    """A thread a core, if BLAS can be held to one thread each and a step is long; else one, and BLAS uses the cores.

    A batch of one text gets all cores too: its attention shares the heads.

    Units: work counts tokens times parameters.
    """
    cores = cores or usable_cores()
    return (cores if batch == 1 else min(cores, batch)) if blas_can_be_held() and work >= WORTH_THREADS else 1


def blas_can_be_held() -> bool:
    """Whether BLAS can be kept to one thread, so that threads of ours do not fight with its own for the cores."""
    return os.environ.get("OPENBLAS_NUM_THREADS") == "1" or _threadpoolctl() is not None


def single_threaded_blas() -> AbstractContextManager[Any]:
    """Within it BLAS uses one thread, where threadpoolctl is installed."""
    return _blas_threads(1)


@contextmanager
def all_cores() -> Iterator[None]:
    """Within it a model that runs without shards, as in generation, has all cores of this process, if it may."""
    with ExitStack() as stack:
        try:
            workers = stack.enter_context(Workers(usable_cores() if blas_can_be_held() else 1))
        except InputError:  # slower, with the same bits
            workers = stack.enter_context(Workers(1))
        stack.enter_context(workers.lent())
        yield


class Workers:
    """Within it `count` threads apply a function to items and give the results in the order of the items.

    BLAS keeps its own threads only where one worker is `alone` on its machine.

    Raises: InputError, on entering, where the system gives no more threads.
    """

    def __init__(self, count: int, alone: bool = True) -> None:
        self.count = count
        self.alone = alone
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._pool = started(self.count) if self.count > 1 else None
        self._blas = nullcontext() if self.count == 1 and self.alone else single_threaded_blas()
        self._blas.__enter__()
        self._switch_interval = sys.getswitchinterval()
        if self._pool is not None:
            sys.setswitchinterval(SWITCH_INTERVAL)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setswitchinterval(self._switch_interval)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None
        self._blas.__exit__(None, None, None)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Lazily, and in order."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)

    def one_by_one(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        """The same for items that need all threads, and all memory, for themselves."""
        with self.lent():
            return [function(item) for item in items]

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Within it the threads serve one caller, who computes outside them: BLAS and `threads.share` have them all."""
        if self._pool is None:
            yield
            return
        pool = self._pool

        def run_all(work: Work, items: Iterable[Any]) -> None:
            with single_threaded_blas():
                for _ in pool.map(work, items):
                    pass

        with _blas_threads(self.count), lend(run_all, self.count):
            yield


def shards(batch: Batch, count: int) -> list[Batch]:
    """The batch cut along its first axis into `count` shards of nearly equal size, fewer if it has fewer examples."""
    count = min(count, len(batch[0]))
    return list(zip(*(np.array_split(array, count) for array in batch), strict=True))


def count_targets(batch: Batch, ignore_index: int = -100) -> int:
    """How many targets enter the mean; the targets are the last array of a batch."""
    return int((batch[-1] != ignore_index).sum())


def loss_and_gradients(
    model: Any,
    batch: Batch,
    count: int,
    workers: Workers,
    rngs: Sequence[np.random.Generator | None] | Mapping[int, np.random.Generator | None],
    mine: range | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The mean loss over the counted targets of a batch and its gradients, computed in `count` shards.

    rngs[i] draws the dropout of shard i. With `mine` only the terms of those shards are computed, the rest being left
    to other processes: the sum over all processes is the whole.
    """
    cut = shards(batch, count)
    mine = range(len(cut)) if mine is None else mine
    counts = [count_targets(shard) for shard in cut]
    weights = [n / max(sum(counts), 1) for n in counts]
    total = OrderedSum(len(mine))

    def work(i: int) -> np.ndarray:
        loss, cache = model.loss(*cut[i], training=True, rng=rngs[i])
        total.add(i - mine.start, model.gradients(cache, dloss=weights[i]))
        return weights[i] * loss.astype(np.float64)  # not float(loss), for which a GPU would be waited for

    try:
        loss: Any = sum(workers.one_by_one(work, mine) if len(mine) == 1 else workers.map(work, mine))
    except BaseException:
        total.stop()  # the failed shard adds no more, nor does one that the pool has cancelled before it began
        raise
    grads = {name: total.arrays[name] for name in model.parameters()} if mine else {}
    return loss, grads


class OrderedSum:
    """Adds up the gradients of `count` shards, each as soon as the shard before has added its own of the same name.

    The order of the sum is fixed, one copy of the gradients is in memory however many shards there are, and the adding
    is done by all threads. All shards come with the same names in the same order.
    """

    def __init__(self, count: int) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        # for shard i + 1: True for every gradient that shard i has added, False once the sum has stopped
        self._added: list[SimpleQueue[bool]] = [SimpleQueue() for _ in range(count)]

    def add(self, i: int, gradients: Iterable[tuple[str, np.ndarray]]) -> None:
        """Add the gradients of shard i as they come, each when the shard before has added its own."""
        before, mine = self._added[i - 1] if i else None, self._added[i]
        for name, g in gradients:
            if before is None:
                self.arrays[name] = g
            elif before.get():  # waits for it
                self.arrays[name] += g  # without a lock: nobody else's turn is now
            else:
                raise RuntimeError("another shard has failed")
            mine.put(True)

    def stop(self) -> None:
        """A shard has failed: the shards that would wait for another one fail instead."""
        for added in self._added:
            added.put(False)


def mean_loss(model: Any, batches: Iterable[Batch], workers: Workers) -> float:
    """The mean loss over all counted targets of all batches, without dropout."""

    def work(batch: Batch) -> tuple[int, float]:
        return count_targets(batch), float(model.loss(*batch)[0])

    batches = iter(batches)  # read one by one: all of them may be larger than the memory
    first = list(islice(batches, 1))
    long_texts = bool(first) and len(first[0][0]) == 1
    counted, total = 0, 0.0
    for n, loss in (workers.one_by_one if long_texts else workers.map)(work, chain(first, batches)):
        counted, total = counted + n, total + n * loss
    return total / max(counted, 1)


def _blas_threads(count: int) -> AbstractContextManager[Any]:
    """Within it BLAS uses so many threads, where threadpoolctl is installed."""
    controller = _controller()
    return nullcontext() if controller is None else controller.limit(limits=count, user_api="blas")


@functools.cache
def _controller() -> Any:
    """What has found the libraries of this process, which takes milliseconds, and is kept."""
    threadpoolctl = _threadpoolctl()
    return None if threadpoolctl is None else threadpoolctl.ThreadpoolController()


def _threadpoolctl() -> Any:
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl
