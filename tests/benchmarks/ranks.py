"""A training step by several processes, each with its share of the batch: Chapter 32, on one machine.

The first of them is a contender like the others (`worker.py`) and tells the rest what to do.
"""

import atexit
import time
from collections.abc import Callable
from typing import Any

try:
    from mpi4py import MPI
except ImportError:
    raise ImportError("mpi4py is not installed: pip install '.[mpi]'") from None

from numpy_attention.runs.memory import keep_freed_memory
from numpy_attention.runs.mpi import Ranks
from numpy_attention.runs.parallel import Workers, loss_and_gradients
from numpy_attention.training.optimizers import AdamW
from tests.benchmarks.work import BETA_2, DECAY, RATE, UNTIL_THE_END, Case, Work, model_and_batches

ranks = Ranks(MPI)
PATIENCE = 0.05  # seconds without an order, after which a rank sleeps between two looks: others have the cores then


def make(case: Case, variant: str, threads: int) -> Work:
    """The step of a case, on all ranks."""
    step = _step(_tell(case)["size"])
    return Work(lambda: _tell("step") and step(), lambda: [_tell("step") and step() for _ in range(3)])


def follow() -> None:
    """What the other ranks do: as they are told, to the end."""
    step: Callable[[], float] = lambda: 0.0  # noqa: E731  until the first case
    while (order := _told()) != "end":
        if order == "step":
            step()
        else:
            step = _step(order["size"])


def _step(size: str) -> Callable[[], float]:
    keep_freed_memory()
    model, batches = model_and_batches(size)
    workers = UNTIL_THE_END.enter_context(Workers(1, alone=False))
    optimizer = AdamW(model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)
    turns = iter(range(10**9))

    def step() -> float:
        batch, count = batches[next(turns) % 4], ranks.size
        loss, grads = loss_and_gradients(model, batch, count, workers, [None] * count, ranks.share(count))
        loss, grads, _ = ranks.total(model.parameters(), loss, grads, None)
        optimizer.step(grads)
        return float(loss)

    return step


def _tell(order: Any) -> Any:
    for rank in range(1, ranks.size):
        ranks.comm.send(order, rank)
    return order


def _told() -> Any:
    since = time.monotonic()
    while not ranks.comm.iprobe(0):
        if time.monotonic() - since > PATIENCE:
            time.sleep(0.001)
    return ranks.comm.recv(source=0)


if ranks.rank == 0:
    atexit.register(_tell, "end")
