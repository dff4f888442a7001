"""Chapter 30. All cores: one batch, several threads

A batch is cut into shards, and the loss and its gradient are weighted sums over the shards, as in Chapter 28. Each
shard needs one forward and one backward with the same parameters, and no thread changes the parameters meanwhile.
Layers store nothing between calls, so threads need no locks. NumPy releases Python's interpreter lock inside its loops
and matrix products, so the threads really run at the same time. A backward starts with the weight of its shard as
dloss, so no gradient must be scaled afterwards.

Floating-point sums depend on their order. So the gradients are added in the order of the shards, not in the order in
which the threads finish. Then the same run always gives the same bits.

    shard 0    forward    backward --> grads --+
                                               (+)--> the gradients of the batch
    shard 1    forward    backward --> grads --+

BLAS has its own threads. K workers with K BLAS threads each would compete for K cores, so BLAS is limited to one
thread. A batch of one text cannot be cut: then BLAS uses all threads for the large products, and tiled attention
(Chapter 12), whose products are small, divides its heads among our threads. Heads are independent, so the bits do not
depend on the number of threads.
"""

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Self

import numpy as np

from numpy_attention.threads import at_most, blas_threads, controller, lend
from numpy_attention.training.c28_loop import Batch, count_targets, weighted_shards

# Seconds that a thread waits before it asks for the interpreter. Python's default of 5 ms is long compared with a NumPy
# call of 0.05 ms; with this value small models run 10 % faster.
SWITCH_INTERVAL = 1e-4
# Parameters times tokens of a step. Measured on two cores with models of width 16 to 128: at about this number two
# threads are as fast as one thread; at a tenth of this number they are half as fast.
WORTH_THREADS = 30_000_000
WORTH_SHARING = 1_000_000  # parameters of a step; with fewer, threads cost more time than they save


def usable_cores() -> int:
    """The number of cores that this process may use; OMP_NUM_THREADS in the environment can allow fewer."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return at_most(cores, "OMP_NUM_THREADS")


def default_workers(batch: int, work: int, cores: int | None = None) -> int:
    """One thread for each core if BLAS can be limited to one thread and a step is long; otherwise one thread.

    A batch of one text also gets all cores: attention divides its heads.

    Units: work counts tokens times parameters.
    """
    limited = os.environ.get("OPENBLAS_NUM_THREADS") == "1" or controller()
    if work < WORTH_THREADS or not limited:
        return 1
    cores = cores or usable_cores()
    return cores if batch == 1 else min(cores, batch)


class Workers:
    """Inside this context `count` threads apply a function to items and give the results in the order of the items.

    BLAS is limited to one thread. This limit and Python's switch interval belong to the process, so two threads must
    not use Workers at the same time.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Self:
        self._context = ExitStack()
        self._context.enter_context(blas_threads(1))
        if self.count > 1:
            self._context.callback(sys.setswitchinterval, sys.getswitchinterval())
            sys.setswitchinterval(SWITCH_INTERVAL)
            self._pool = self._context.enter_context(ThreadPoolExecutor(self.count))
        return self

    def __exit__(self, *error: object) -> None:
        self._context.close()
        self._pool = None

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], one_by_one: bool = False) -> Iterator[Any]:
        """Yield the results of the function in the order of the items; one_by_one, each large item uses all threads."""
        if one_by_one:
            with self.lent():
                return iter([function(item) for item in items])
        return map(function, items) if self._pool is None else self._pool.map(function, items)

    def sharing(self, parameters: int) -> AbstractContextManager[None]:
        """Inside this context the threads share the step of an optimizer, if it has enough parameters."""
        return self.lent() if parameters >= WORTH_SHARING else nullcontext()

    @contextmanager
    def lent(self) -> Iterator[None]:
        """Inside this context the threads serve one caller outside the pool: BLAS and `threads.share` use them."""
        with blas_threads(self.count), lend(self._pool, self.count):
            yield


def loss_and_gradients(
    model: Any, batch: Batch, count: int, workers: Workers,
    rngs: Sequence[np.random.Generator | None] | Mapping[int, np.random.Generator | None], mine: range | None = None,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """The mean loss over the counted targets of a batch and the gradients of this loss, computed in `count` shards.

    rngs[i] draws the dropout of shard i. With `mine`, this process computes only the shards in `mine`, and other
    processes compute the rest; the sum over all processes is the loss of the whole batch.

    Raises: the error of the first shard that fails.
    """
    cut = weighted_shards(batch, count)
    mine = range(len(cut)) if mine is None else mine

    def work(i: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        shard, weight = cut[i]
        loss, cache = model.loss(*shard, training=True, rng=rngs[i])
        grads = model.backward(cache, dloss=weight)
        return weight * loss.astype(np.float64), grads  # float(loss) would wait for a GPU

    loss: Any = 0.0
    total: dict[str, np.ndarray] = {}
    for of_shard, grads in workers.map(work, mine, one_by_one=len(mine) == 1):
        loss = loss + of_shard
        for name, g in grads.items():
            if name in total:
                total[name] += g
            else:
                total[name] = g
    return loss, total


def mean_loss(model: Any, batches: Iterable[Batch], workers: Workers) -> float:
    """The mean loss over all counted targets of all batches, without dropout."""

    def work(batch: Batch) -> tuple[int, float]:
        return count_targets(batch), float(model.loss(*batch)[0])

    batches = list(batches)
    long_texts = bool(batches) and len(batches[0][0]) == 1
    counted, total = 0, 0.0
    for n, loss in workers.map(work, batches, one_by_one=long_texts):
        counted, total = counted + n, total + n * loss
    return total / max(counted, 1)
