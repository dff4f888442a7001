"""Chapter 32. Many machines: one batch, several processes

Threads share one memory; machines do not. So every process ("rank") holds all parameters and the optimizer's moments,
takes its own shards of the batch, and before the step the gradients of all are added up. As with threads,

    d loss / d p = sum over ranks, and over the shards i of each, of (n_i / n) d loss_i / d p

    rank 0    shards 0, 1    grads --.                   .--> sums    step
    rank 1    shards 2, 3    grads ---+--> Allreduce ---+---> sums    step
    rank 2    shards 4, 5    grads --'                   '--> sums    step

where n_i is the number of counted tokens of a shard and n that of the whole batch. Everybody draws the whole batch's
numbers from the same generator and keeps the shards that are its own, so n is known without asking, and the batch of a
step is the same however many ranks share it: a run may go on with another number of them.

A message costs its latency however short it is. Hence one message a step: all gradients in one flat buffer, and with
them the loss and whether somebody was told to stop.

    Allreduce(buffer)       every rank gives its numbers and gets the sums, bit for bit the same on all

So all ranks take the same step and stay equal without being compared. Evaluation is shared in the same manner: each
rank takes every size-th part of the held-out data, and all get all results. Rank 0 alone speaks, logs and saves.

    pip install 'numpy-attention[mpi]'
    mpiexec -n 4 python -m mpi4py -m numpy_attention train

`-m mpi4py` ends the whole job when one rank fails; without it the others would wait for that rank for ever. What it
all costs, and how far it scales, is in `docs/scaling.md`.
"""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from numpy_attention.backend import BackendError
from numpy_attention.errors import InputError, one_line
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.parallel import Workers, default_workers, usable_cores

Value = TypeVar("Value")
SIGNALS = ("SIGINT", "SIGTERM")
SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # how launchers tell how many they have started


class OneProcess:
    """A run in a single process: what Ranks does, when there is nobody to talk to."""

    rank = 0
    size = 1

    def __init__(self) -> None:
        self.cores = usable_cores()

    def share(self, shards: int) -> range:
        """Which of the shards of a batch are this rank's."""
        return range(self.rank * shards // self.size, (self.rank + 1) * shards // self.size)

    def threads(self, config: TrainConfig, num_parameters: int) -> int:
        """How many threads share this rank's shards of a batch.

        Raises: InputError for ranks that cannot share one.
        """
        on_host = config.backend == "numpy"
        if self.size > 1 and not on_host:
            raise InputError("ranks add up their gradients in the host's memory; leave --backend out")
        if self.size > config.batch:
            raise InputError(f"{self.size} ranks cannot share a batch of {config.batch}; give a larger --batch")
        if config.workers or not on_host:
            return config.workers or 1  # a GPU is one worker, who takes the batch whole
        examples = config.batch // self.size
        return default_workers(examples, examples * config.context * num_parameters, self.cores)

    def total(
        self, parameters: Mapping[str, np.ndarray], loss: Any, grads: dict[str, np.ndarray], signal: str | None
    ) -> tuple[Any, dict[str, np.ndarray], str | None]:
        """The sums over all ranks of loss and gradients, and a signal if any rank has got one."""
        return loss, grads, signal

    def everyones(self, value: Value) -> list[Value]:
        """What each rank gives, in the order of the ranks, on every rank."""
        return [value]

    def wait(self) -> None:
        """Wait until all ranks have come here."""

    def workers(self, workers: Workers) -> Workers:
        """Workers who share their items with those of the other ranks."""
        return workers

    def same_start(self, parameters: Mapping[str, np.ndarray], facts: Any) -> None:
        """Everyone begins with the numbers of rank 0."""

    def together(self, function: Callable[[], Value]) -> Value:
        """The function's value; where it refuses input on any rank, all ranks end, and the error is told once."""
        return function()

    def silence(self) -> contextlib.AbstractContextManager[Any]:
        """Within it only rank 0 prints."""
        return contextlib.nullcontext()


class Ranks(OneProcess):
    """The processes that mpiexec has started; `mpi` is the module mpi4py.MPI."""

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
        """The sums over all ranks of loss and gradients, by one Allreduce; the gradients are views of one buffer."""
        count = sum(p.size for p in parameters.values())
        if self._buffer is None:
            dtype = np.result_type(*(p.dtype for p in parameters.values()))
            self._buffer = np.empty(count + 1 + len(SIGNALS), dtype)
        buffer, start = self._buffer, 0
        sums: dict[str, np.ndarray] = {}
        for name, p in parameters.items():
            sums[name] = buffer[start : start + p.size].reshape(p.shape)
            sums[name][...] = grads.get(name, 0.0)  # a rank without a shard, for lack of examples, adds zeros
            start += p.size
        buffer[count] = loss
        buffer[count + 1 :] = [signal == name for name in SIGNALS]
        self.comm.Allreduce(self._in_place, buffer)
        stopped = [name for name, told in zip(SIGNALS, buffer[count + 1 :]) if told > 0]
        return buffer[count].astype(np.float64), sums, stopped[0] if stopped else None

    def everyones(self, value: Value) -> list[Value]:
        values: list[Value] = self.comm.allgather(value)
        return values

    def wait(self) -> None:
        self.comm.Barrier()

    def workers(self, workers: Workers) -> Workers:
        return _SharedWorkers(self, workers)

    def same_start(self, parameters: Mapping[str, np.ndarray], facts: Any) -> None:
        """Everyone begins with the numbers of rank 0.

        Raises: InputError where the facts differ.
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
            rank = next(i for i, said in enumerate(errors) if said)
            where = f" (on rank {rank})" if len(set(errors)) > 1 else ""
            print(f"numpy-attention: {errors[rank]}{where}", file=sys.stderr, flush=True)
        self.wait()  # whoever ends with an error ends the others: first let rank 0 say why
        raise SystemExit(2)

    @contextlib.contextmanager
    def silence(self) -> Iterator[None]:
        if self.rank == 0:
            yield
            return
        with open(os.devnull, "w", encoding="utf-8") as nowhere, contextlib.redirect_stdout(nowhere):
            yield


class _SharedWorkers(Workers):
    """Each rank's own threads apply the function to every size-th item; everyone gets all results, in order."""

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
    """The ranks of this job; OneProcess where mpiexec has started no more than one, or none."""
    told = max((int(size) for size in map(os.environ.get, SIZES) if size and size.isdecimal()), default=1)
    if "mpi4py.run" in sys.modules:
        from mpi4py import MPI

        return Ranks(MPI) if MPI.COMM_WORLD.Get_size() > 1 else OneProcess()
    if told > 1:
        raise InputError(
            f"mpiexec has started {told} processes that know nothing of each other; "
            "say: mpiexec -n N python -m mpi4py -m numpy_attention train ... (pip install mpi4py mpich)"
        )
    return OneProcess()
