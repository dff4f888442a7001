"""Chapter 32. Many machines: one batch, several processes

Threads share one memory; machines do not. So every process ("rank") holds all parameters and the moments of the
optimizer and computes its own shards of the batch. Before the step, the gradients of all ranks are added up. As with
threads,

    d loss / d p = sum over ranks, and over the shards i of each rank, of (n_i / n) d loss_i / d p

    rank 0    shards 0, 1    grads --.                   .--> sums    step
    rank 1    shards 2, 3    grads ---+--> Allreduce ---+---> sums    step
    rank 2    shards 4, 5    grads --'                   '--> sums    step

Here n_i is the number of counted tokens of shard i, and n is this number for the whole batch. Every rank draws the
whole batch from the same generator and uses only its own shards. So every rank knows n without a message, and the
batch of a step does not depend on the number of ranks: a resumed run may use another number of ranks.

Even a short message costs its latency. So each step sends one message: one flat buffer holds all gradients, the loss,
and a flag for each stop signal.

    Allreduce(buffer)       every rank gives its numbers and gets the sums, bit for bit the same on all ranks

So all ranks take the same step and stay equal without further checks. They share the evaluation in the same way: with
`size` ranks, each rank takes every size-th part of the held-out data, and all ranks get all results. Only rank 0
prints, logs and saves.

    pip install 'numpy-attention[mpi]'
    mpiexec -n 4 python -m mpi4py -m numpy_attention train

`-m mpi4py` ends the whole job when one rank fails; without it the other ranks would wait forever. `docs/scaling.md`
shows the measured cost and scaling.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from numpy_attention.backend import BackendError
from numpy_attention.errors import InputError, one_line
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.parallel import Workers, default_workers, usable_cores

Value = TypeVar("Value")
SIGNALS = ("SIGINT", "SIGTERM")
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # set by launchers: the number of processes


class OneProcess:
    """A run in a single process, with the interface of Ranks."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self.cores = usable_cores()

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
        examples = config.batch // self.size
        return default_workers(examples, examples * config.context * num_parameters, self.cores)

    def total(
        self, parameters: Mapping[str, np.ndarray], loss: Any, grads: dict[str, np.ndarray], signal: str | None
    ) -> tuple[Any, dict[str, np.ndarray], str | None]:
        """The sums of loss and gradients over all ranks, and a signal if any rank has received one."""
        return loss, grads, signal

    def everyones(self, value: Value) -> list[Value]:
        """The values of all ranks, in the order of the ranks, on every rank."""
        return [value]

    def wait(self) -> None:
        """Wait until all ranks have reached this call."""

    def workers(self, workers: Workers) -> Workers:
        """Workers that share their items with the workers of the other ranks."""
        return workers

    def same_start(self, parameters: Mapping[str, np.ndarray], facts: Any) -> None:
        """Give every rank the parameters of rank 0."""

    def together(self, function: Callable[[], Value]) -> Value:
        """The value of the function. If it refuses input on any rank, all ranks end and the error is printed once."""
        return function()

    def silence(self) -> contextlib.AbstractContextManager[Any]:
        """Inside this context only rank 0 prints."""
        return contextlib.nullcontext()


class Ranks(OneProcess):
    """The processes started by mpiexec; `mpi` is the module mpi4py.MPI."""

    def __init__(self, mpi: Any) -> None:
        self.comm = mpi.COMM_WORLD
        self.rank, self.size = self.comm.Get_rank(), self.comm.Get_size()
        neighbours = self.comm.Split_type(mpi.COMM_TYPE_SHARED).Get_size()  # the ranks on this machine
        self.cores = max(1, usable_cores() // neighbours)
        self._in_place = mpi.IN_PLACE
        self._buffer: np.ndarray | None = None

    def total(
        self, parameters: Mapping[str, np.ndarray], loss: Any, grads: dict[str, np.ndarray], signal: str | None
    ) -> tuple[Any, dict[str, np.ndarray], str | None]:
        """The sums of loss and gradients over all ranks, by one Allreduce; the gradients are views of one buffer."""
        count = sum(p.size for p in parameters.values())
        if self._buffer is None:
            dtype = np.result_type(*(p.dtype for p in parameters.values()))
            self._buffer = np.empty(count + 1 + len(SIGNALS), dtype)
        buffer, start = self._buffer, 0
        sums: dict[str, np.ndarray] = {}
        for name, p in parameters.items():
            sums[name] = buffer[start : start + p.size].reshape(p.shape)
            sums[name][...] = grads.get(name, 0.0)  # a rank without a shard adds zeros
            start += p.size
        buffer[count] = loss
        buffer[count + 1 :] = [signal == name for name in SIGNALS]
        self.comm.Allreduce(self._in_place, buffer)
        stopped = [name for name, received in zip(SIGNALS, buffer[count + 1 :]) if received > 0]
        return buffer[count].astype(np.float64), sums, stopped[0] if stopped else None

    def everyones(self, value: Value) -> list[Value]:
        return self.comm.allgather(value)

    def wait(self) -> None:
        self.comm.Barrier()

    def workers(self, workers: Workers) -> Workers:
        return _SharedWorkers(self, workers)

    def same_start(self, parameters: Mapping[str, np.ndarray], facts: Any) -> None:
        """Give every rank the parameters of rank 0.

        Raises: InputError if the facts of two ranks differ.
        """
        everyones = self.everyones(facts)
        for rank, theirs in enumerate(everyones):
            if theirs != everyones[0]:
                raise InputError(f"rank {rank} has other settings, another text or another checkpoint than rank 0")
        for p in parameters.values():
            self.comm.Bcast(p)

    def together(self, function: Callable[[], Value]) -> Value:
        values: list[Value] = []
        error = None
        try:
            values.append(function())
        except (InputError, BackendError) as refused:
            error = one_line(refused)
        errors = self.everyones(error)
        if not any(errors):
            return values[0]
        if self.rank == 0:
            rank = next(i for i, message in enumerate(errors) if message)
            where = f" (on rank {rank})" if len(set(errors)) > 1 else ""
            print(f"numpy-attention: {errors[rank]}{where}", file=sys.stderr, flush=True)
        self.wait()  # a rank that ends with an error ends all ranks: wait until rank 0 has printed the reason
        raise SystemExit(2)

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        if self.rank == 0:
            yield
            return
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


class _SharedWorkers(Workers):
    """The threads of each rank apply the function to every size-th item; all ranks get all results in order."""

    def __init__(self, ranks: Ranks, own: Workers) -> None:
        super().__init__(1)
        self.ranks, self.own = ranks, own

    def map(self, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        return self._shared(self.own.map, function, items)

    def one_by_one(self, function: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
        return list(self._shared(self.own.one_by_one, function, items))

    def _shared(self, apply: Any, function: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        ranks = self.ranks
        mine = (item for i, item in enumerate(items) if i % ranks.size == ranks.rank)
        results = ranks.everyones(list(apply(function, mine)))
        for i in range(sum(map(len, results))):
            yield results[i % ranks.size][i // ranks.size]


def started_ranks() -> OneProcess:
    """The ranks of this job; OneProcess if mpiexec was not used or has started only one process."""
    count = max((int(size) for size in map(os.environ.get, SIZES) if size and size.isdecimal()), default=1)
    if "mpi4py.run" in sys.modules:
        from mpi4py import MPI

        return Ranks(MPI) if MPI.COMM_WORLD.Get_size() > 1 else OneProcess()
    if count > 1:
        raise InputError(
            f"mpiexec has started {count} processes without a connection between them; "
            "use: mpiexec -n N python -m mpi4py -m numpy_attention train ... (pip install mpi4py mpich)"
        )
    return OneProcess()
