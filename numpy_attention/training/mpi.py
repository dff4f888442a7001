"""Chapter 32. Many machines: one batch, several processes

Threads share one memory; machines do not. So every process ("rank") holds all parameters and computes its own shards
of the batch. Before the step, the gradients of all ranks are added up, with the weights of Chapter 31:

    rank 0    shards 0, 1    grads --.                   .--> sums    step
    rank 1    shards 2, 3    grads ---+--> Allreduce ---+---> sums    step
    rank 2    shards 4, 5    grads --'                   '--> sums    step

Every rank draws the whole batch from the same generator and uses only its own shards, so the batch of a step does not
depend on the number of ranks. Even a short message costs its latency, so each step sends one: a flat buffer holds all
gradients, the loss, and a flag for each stop signal. All ranks get the same sums, bit for bit, and take the same step.

    pip install 'numpy-attention[mpi]'
    mpiexec -n 4 python -m mpi4py -m numpy_attention train

`-m mpi4py` connects the ranks, and ends the whole job when one rank fails.
"""

import contextlib
import io
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from numpy_attention.errors import InputError, one_line
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.parallel import Workers, default_workers, usable_cores

Value = TypeVar("Value")
SIGNALS = ("SIGINT", "SIGTERM")


class Ranks:
    """The processes that mpiexec has started, or this process alone; `mpi` is the module mpi4py.MPI or None."""

    def __init__(self, mpi: Any = None) -> None:
        self.mpi = mpi
        self.rank = int(mpi.COMM_WORLD.Get_rank()) if mpi else 0
        self.size = int(mpi.COMM_WORLD.Get_size()) if mpi else 1

    def everyones(self, value: Value) -> list[Value]:
        """The values of all ranks, in the order of the ranks, on every rank; each rank waits for all others."""
        return self.mpi.COMM_WORLD.allgather(value) if self.mpi else [value]

    def share(self, shards: int) -> range:
        """The shards of a batch that this rank computes."""
        return range(self.rank * shards // self.size, (self.rank + 1) * shards // self.size)

    def threads(self, config: TrainConfig, num_parameters: int) -> int:
        """The number of threads that share this rank's shards of a batch.

        Raises: InputError if the ranks cannot share a batch.
        """
        on_host = config.backend == "numpy"
        if self.size > 1 and not on_host:
            raise InputError("ranks add up their gradients in the memory of the host; leave --backend out")
        if self.size > config.batch:
            raise InputError(f"{self.size} ranks cannot share a batch of {config.batch}; give a larger --batch")
        if config.workers or not on_host:
            return config.workers or 1  # a GPU is one worker with the whole batch
        neighbours = self.everyones(platform.node()).count(platform.node())  # the ranks on this machine
        examples = config.batch // self.size
        cores = max(1, usable_cores() // neighbours)
        return default_workers(examples, examples * config.context * num_parameters, cores)

    def total(
        self, parameters: Mapping[str, np.ndarray], loss: Any, grads: dict[str, np.ndarray], signal: str | None
    ) -> tuple[Any, dict[str, np.ndarray], str | None]:
        """The sums of loss and gradients over all ranks, and a signal if any rank has received one."""
        if self.size == 1:
            return loss, grads, signal
        # a rank without a shard adds zeros
        flat = [(grads[name] if grads else np.zeros_like(p)).reshape(-1) for name, p in parameters.items()]
        buffer = np.concatenate([*flat, [loss, *(signal == name for name in SIGNALS)]], dtype=flat[0].dtype)
        self.mpi.COMM_WORLD.Allreduce(self.mpi.IN_PLACE, buffer)
        *flat, (loss, *signals) = np.split(buffer, np.cumsum([p.size for p in parameters.values()]))
        sums = {name: g.reshape(p.shape) for (name, p), g in zip(parameters.items(), flat, strict=True)}
        stopped = [name for name, received in zip(SIGNALS, signals, strict=True) if received]
        return loss.astype(np.float64), sums, stopped[0] if stopped else None

    def workers(self, workers: Workers) -> Workers:
        """Workers that share their items with the workers of the other ranks."""
        return _SharedWorkers(self, workers) if self.size > 1 else workers

    def together(self, function: Callable[[], Value]) -> Value:
        """The value of the function. If it refuses input on any rank, rank 0 prints the reason and all ranks end."""
        if self.size == 1:
            return function()
        values, error = [], ""
        try:
            values = [function()]
        except InputError as refused:
            error = one_line(refused)
        if not (errors := [one for one in self.everyones(error) if one]):
            return values[0]
        if self.rank == 0:
            print(f"numpy-attention: {errors[0]}", file=sys.stderr, flush=True)
        self.everyones(None)  # a rank that ends with an error ends all ranks: wait until rank 0 has printed the reason
        raise SystemExit(2)

    def silence(self) -> contextlib.AbstractContextManager[Any]:
        """Inside this context only rank 0 prints."""
        return contextlib.redirect_stdout(io.StringIO() if self.rank else sys.stdout)


class _SharedWorkers(Workers):
    """The threads of each rank apply the function to every size-th item; all ranks get all results in order."""

    def __init__(self, ranks: Ranks, own: Workers) -> None:
        super().__init__(own.count)
        self.ranks, self.own = ranks, own

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], one_by_one: bool = False) -> Iterator[Any]:
        size, mine = self.ranks.size, islice(items, self.ranks.rank, None, self.ranks.size)
        results = self.ranks.everyones(list(self.own.map(function, mine, one_by_one)))
        return (results[i % size][i // size] for i in range(sum(map(len, results))))


def started_ranks() -> Ranks:
    """The ranks of this job; without `python -m mpi4py`, this process alone."""
    if "mpi4py.run" not in sys.modules:
        return Ranks()
    from mpi4py import MPI

    return Ranks(MPI)
