"""A training step by several processes, each with a part of the batch: Chapter 32, on one machine.

The first process (rank 0) is a contender like the others (`worker.py`) and sends orders to the other ranks.
"""

import atexit
import time
from collections.abc import Callable
from typing import Any

try:
    from mpi4py import MPI
except ImportError:
    raise ImportError("mpi4py is not installed: pip install '.[mpi]'") from None

from numpy_attention.training.memory import keep_freed_memory
from numpy_attention.training.mpi import Ranks
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.parallel import Workers, loss_and_gradients
from tests.benchmarks.work import BETA_2, DECAY, PROCESS_RESOURCES, RATE, Case, Work, model_and_batches

ranks = Ranks(MPI)
BUSY_WAIT = 0.05  # seconds without an order; then a rank sleeps between its checks, so that others can use the cores


def make(case: Case, variant: str, threads: int) -> Work:
    """The training step of a case, on all ranks."""
    step = _step(_send_order(case)["size"])
    return Work(lambda: _send_order("step") and step(), lambda: [_send_order("step") and step() for _ in range(3)])


def follow() -> None:
    """The other ranks run this: they carry out orders until the order is "end"."""
    step: Callable[[], float] = lambda: 0.0  # noqa: E731  replaced by the first case
    while (order := _receive_order()) != "end":
        if order == "step":
            step()
        else:
            step = _step(order["size"])


def _step(size: str) -> Callable[[], float]:
    keep_freed_memory()
    model, batches = model_and_batches(size)
    workers = PROCESS_RESOURCES.enter_context(Workers(1))
    optimizer = AdamW(model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)
    turns = iter(range(10**9))

    def step() -> float:
        batch, count = batches[next(turns) % 4], ranks.size
        loss, grads = loss_and_gradients(model, batch, count, workers, [None] * count, ranks.share(count))
        loss, grads, _ = ranks.total(model.parameters(), loss, grads, None)
        optimizer.step(grads)
        return float(loss)

    return step


def _send_order(order: Any) -> Any:
    for rank in range(1, ranks.size):
        ranks.comm.send(order, rank)
    return order


def _receive_order() -> Any:
    since = time.monotonic()
    while not ranks.comm.iprobe(0):
        if time.monotonic() - since > BUSY_WAIT:
            time.sleep(0.001)
    return ranks.comm.recv(source=0)


if ranks.rank == 0:
    atexit.register(_send_order, "end")
