"""Chapter 31. All cores: one batch, several threads.

The loss of a batch is a mean over its n counted tokens. Cut the batch into shards that count n_1, ..., n_K of them,
and both the loss and its gradient are the weighted sums of the shards' own:

    loss = sum_i (n_i / n) loss_i            d loss / d p = sum_i (n_i / n) d loss_i / d p

Each shard is one forward and one backward over the same parameters, which nobody writes to meanwhile. Layers keep
nothing between calls, so threads need no locks; NumPy lets go of Python's interpreter lock inside its loops and
matrix products, so they run at once. Weights n_i / n matter: with padding the shards count different numbers
of tokens, and the mean of the shards' means would be another number.

The weight of a shard goes in where its backward begins, as dloss, instead of through every gradient at its end.

Floating-point sums depend on their order. The shards' gradients are added in the order of the shards, not in that in
which the threads finish, so the same run gives the same bits every time.

BLAS has threads of its own. K workers with K BLAS threads each would fight for K cores, so BLAS is held to one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import Condition
from typing import Any, Self

import numpy as np

from numpy_attention.models.model import in_order_of

Batch = tuple[np.ndarray, ...]
# Seconds a thread waits for the interpreter before it asks for it. Python's 5 ms are long beside a NumPy call of
# 0.05 ms: small models gain a tenth.
SWITCH_INTERVAL = 1e-4

# Parameters times tokens of a step from which on threads gain more than they wait for each other. Measured on two cores
# with models from 16 to 128 wide: about here two threads are as fast as one, at a tenth of it half as fast.
WORTH_SHARING = 30_000_000


def usable_cores() -> int:
    """The cores this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def default_workers(batch: int, work: int, cores: int | None = None) -> int:
    """A thread a core, if BLAS can be held to one thread each and a step is long; else one, and BLAS uses the cores.

    Units: work counts tokens times parameters.
    """
    held = os.environ.get("OPENBLAS_NUM_THREADS") == "1" or _threadpoolctl() is not None
    return min(cores or usable_cores(), batch) if held and work >= WORTH_SHARING else 1


def single_threaded_blas() -> AbstractContextManager[Any]:
    """Within it BLAS uses one thread, where threadpoolctl is installed."""
    threadpoolctl = _threadpoolctl()
    return nullcontext() if threadpoolctl is None else threadpoolctl.threadpool_limits(limits=1, user_api="blas")


class Workers:
    """`count` threads that apply a function to items and give the results in the order of the items.

    BLAS keeps its own threads only where one worker is `alone` on its machine.
    """

    def __init__(self, count: int, alone: bool = True) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(count) if count > 1 else None
        self._blas = nullcontext() if count == 1 and alone else single_threaded_blas()

    def __enter__(self) -> Self:
        self._blas.__enter__()
        self._switch_interval = sys.getswitchinterval()
        if self._pool is not None:
            sys.setswitchinterval(SWITCH_INTERVAL)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setswitchinterval(self._switch_interval)
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._blas.__exit__(None, None, None)

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Lazily, and in order."""
        return map(function, items) if self._pool is None else self._pool.map(function, items)


def shards(batch: Batch, count: int) -> list[Batch]:
    """The batch cut along its first axis into `count` parts of nearly equal size, fewer if it has fewer examples."""
    count = min(count, len(batch[0]))
    return list(zip(*(np.array_split(array, count) for array in batch), strict=True))


def count_targets(batch: Batch, ignore_index: int = -100) -> int:
    """How many targets enter the mean; the targets are the last array of a batch."""
    return int((batch[-1] != ignore_index).sum())


def loss_and_gradients(
    model: Any, batch: Batch, pieces: int, workers: Workers,
    rngs: Sequence[np.random.Generator | None] | Mapping[int, np.random.Generator | None], mine: range | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:  # fmt: skip
    """The mean loss over the counted targets of a batch and its gradients, computed in `pieces` shards.

    rngs[i] draws the dropout of shard i. With `mine` only the terms of those shards are computed, the rest being left
    to other processes: the sum over all processes is the whole.
    """
    parts = shards(batch, pieces)
    mine = range(len(parts)) if mine is None else mine
    counts = [count_targets(part) for part in parts]
    weights = [n / max(sum(counts), 1) for n in counts]

    total = OrderedSum(len(mine))

    def work(i: int) -> np.ndarray:
        with total.told_of_errors(i - mine.start):
            loss, cache = model.loss(*parts[i], training=True, rng=rngs[i])
            model.backward(cache, dloss=weights[i], receive=lambda grads: total.add(i - mine.start, grads))
        return weights[i] * loss.astype(np.float64)  # not float(loss), for which a GPU would be waited for

    total_loss: Any = sum(workers.map(work, mine))
    return total_loss, in_order_of(model, total.arrays)


class OrderedSum:
    """Adds up the gradients of `count` shards, group by group as their backwards come to know them.

    Shard i adds its n-th group after shard i - 1 has added its own: the order of the sum is fixed, one copy of the
    gradients is in memory however many shards there are, and the adding is done by all threads.
    """

    def __init__(self, count: int) -> None:
        self.arrays: dict[str, np.ndarray] = {}
        self._groups_added = [0] * count
        self._changed = Condition()
        self._failed = count  # the first shard that has failed: none yet

    def add(self, shard: int, grads: Mapping[str, np.ndarray]) -> None:
        """Add a group of gradients of one shard when it is this shard's turn."""
        if shard:
            with self._changed:
                turn = self._groups_added[shard]
                self._changed.wait_for(lambda: self._groups_added[shard - 1] > turn or self._failed < shard)
            if self._failed < shard:
                raise RuntimeError(f"shard {self._failed} has failed")
        for name, g in grads.items():  # without the lock: nobody else's turn is now
            if shard:
                self.arrays[name] += g
            else:
                self.arrays[name] = g
        with self._changed:
            self._groups_added[shard] += 1
            self._changed.notify_all()

    @contextmanager
    def told_of_errors(self, shard: int) -> Iterator[None]:
        """Later shards do not wait for one that has failed; earlier ones go on, so that its error is the first seen."""
        try:
            yield
        except BaseException:
            with self._changed:
                self._failed = min(self._failed, shard)
                self._changed.notify_all()
            raise


def mean_loss(model: Any, batches: Iterable[Batch], workers: Workers) -> float:
    """The mean loss over all counted targets of all batches, without dropout."""

    def work(batch: Batch) -> tuple[int, float]:
        return count_targets(batch), float(model.loss(*batch)[0])

    counted, total = 0, 0.0
    for n, loss in workers.map(work, batches):
        counted, total = counted + n, total + n * loss
    return total / max(counted, 1)


def _threadpoolctl() -> Any:
    try:
        import threadpoolctl
    except ImportError:
        return None
    return threadpoolctl
