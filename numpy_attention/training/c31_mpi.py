"""Chapter 31. Many machines: one batch, several processes

Threads share one memory; machines do not. So every process ("rank") holds all parameters and computes its own shards
of the batch. Before the step, the gradients of all ranks are added up, with the weights of Chapter 30:

    rank 0    shards 0, 1    grads --.                   .--> sums    step
    rank 1    shards 2, 3    grads ---+--> Allreduce ---+---> sums    step

Every rank draws the whole batch from the same generator and uses only its own shards, so the batch of a step does not
depend on the number of ranks. Even a short message costs its latency, so each step sends one: a flat buffer holds all
gradients, the loss, and a flag for a stop signal. All ranks get the same sums, bit for bit, and take the same step.

`mpiexec -n 4 python -m mpi4py -m numpy_attention train` starts four ranks, after `pip install 'numpy-attention[mpi]'`;
`-m mpi4py` connects the ranks, and ends the whole job when one rank fails.
"""

import contextlib
import importlib
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from numpy_attention.errors import InputError, one_line
from numpy_attention.training.c30_parallel import Workers


class Ranks:
    """The processes that mpiexec has started, or this process alone; `mpi` is the module mpi4py.MPI or None."""

    def __init__(self, mpi: Any = None) -> None:
        self.mpi = mpi
        self.rank = int(mpi.COMM_WORLD.Get_rank()) if mpi else 0
        self.size = int(mpi.COMM_WORLD.Get_size()) if mpi else 1

    def everyones(self, value: Any) -> list[Any]:
        """The values of all ranks, in the order of the ranks, on every rank; each rank waits for all others."""
        return self.mpi.COMM_WORLD.allgather(value) if self.mpi else [value]

    def total(
        self, parameters: Mapping[str, np.ndarray], loss: Any, grads: dict[str, np.ndarray], stop: bool
    ) -> tuple[Any, dict[str, np.ndarray], bool]:
        """The sums of loss and gradients, and whether any rank has to stop; a rank without a shard adds zeros."""
        if self.size == 1:
            return loss, grads, stop
        flat = [(grads[name] if grads else np.zeros_like(p)).reshape(-1) for name, p in parameters.items()]
        buffer = np.concatenate([*flat, [loss, stop]], dtype=flat[0].dtype)
        self.mpi.COMM_WORLD.Allreduce(self.mpi.IN_PLACE, buffer)
        *flat, (loss, stops) = np.split(buffer, np.cumsum([p.size for p in parameters.values()]))
        sums = {name: g.reshape(p.shape) for (name, p), g in zip(parameters.items(), flat, strict=True)}
        return loss.astype(np.float64), sums, bool(stops)

    def together(self, function: Callable[[], Any]) -> Any:
        """The value of the function. If it refuses input on any rank, rank 0 prints the reason and all ranks end."""
        if self.size == 1:
            return function()
        try:
            value, error = function(), ""
        except InputError as refused:
            error = one_line(refused)
        if error := next(filter(None, self.everyones(error)), ""):
            if self.rank == 0:
                print(f"numpy-attention: {error}", file=sys.stderr, flush=True)
            self.everyones(None)  # a rank that ends with an error ends all: wait until rank 0 has printed the reason
            raise SystemExit(2)
        return value

    def silence(self) -> contextlib.AbstractContextManager[Any]:
        """Inside this context only rank 0 prints."""
        return contextlib.redirect_stdout(io.StringIO() if self.rank else sys.stdout)


class SharedWorkers(Workers):
    """The threads of each rank apply the function to every size-th item; all ranks get all results in order."""

    def __init__(self, ranks: Ranks, own: Workers) -> None:
        self.count, self.ranks, self.own = own.count, ranks, own

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], one_by_one: bool = False) -> Iterator[Any]:
        items, size = list(items), self.ranks.size
        results = self.ranks.everyones(list(self.own.map(function, items[self.ranks.rank :: size], one_by_one)))
        return (results[i % size][i // size] for i in range(len(items)))


def started_ranks() -> Ranks:
    """The ranks of this job; without `python -m mpi4py`, this process alone."""
    return Ranks(importlib.import_module("mpi4py.MPI") if "mpi4py.run" in sys.modules else None)
