"""The training step with HIPS autograd: the forward is in NumPy, and the library derives the backward."""

try:
    import autograd
    import autograd.numpy as anp
except ImportError:
    raise ImportError("autograd is not installed: pip install '.[bench]'") from None

from numpy_attention.training.optimizers import AdamW
from tests.benchmarks.peers.gpt_in import gpt_loss
from tests.benchmarks.work import BETA_2, DECAY, RATE, Case, Unavailable, Work, model_and_batches


def make(case: Case, variant: str, threads: int) -> Work:
    if case["kind"] != "step":
        raise Unavailable(f"the benchmark has no {case['kind']} for autograd")
    model, batches = model_and_batches(case["size"])
    p = model.parameters()
    optimizer = AdamW(p, RATE, 0.9, BETA_2, weight_decay=DECAY)
    loss_and_grads = autograd.value_and_grad(lambda p, ids, targets: gpt_loss(anp, p, ids, targets, case["size"]))
    turns = iter(range(10**9))

    def step() -> float:
        loss, grads = loss_and_grads(p, *batches[next(turns) % 4])
        optimizer.step(grads)
        return float(loss)

    return Work(step, lambda: [step() for _ in range(3)])
