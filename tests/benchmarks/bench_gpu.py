"""A GPT's training step on a GPU, in tokens per second: this book with CuPy, compared with PyTorch on the same card.

    pip install 'cupy-cuda12x[ctk]' torch
    python -m tests.benchmarks.bench_gpu                     # widths 128, 384 and 768
    python -m tests.benchmarks.bench_gpu 128 --rounds 20
    python -m tests.benchmarks.bench_gpu 128 --backend numpy # tests the script without a GPU

Both models start from the same weights, use the same batches, compute in float32 without TF32, and wait for the GPU
once per step. Their first three losses must agree. They take turns; the results are medians over the rounds.

The parts of our step: each part is timed until its call returns ("called") and until the GPU has finished ("done").
If the two times are nearly equal, the GPU waits for Python: launching the kernels takes longer than running them.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from numpy_attention.backend import NAMES, BackendError, NumPyBackend, get_backend
from numpy_attention.models import GPT, GPTConfig
from numpy_attention.training.optimizers import AdamW
from tests.benchmarks.timing import table

# d_model -> vocab_size, T, B, layers, heads
SIZES = {128: (65, 128, 32, 4, 4), 384: (65, 256, 16, 6, 6), 768: (50257, 256, 8, 12, 12)}
RATE, BETA_2, DECAY = 1e-3, 0.99, 0.1

Batches = list[tuple[np.ndarray, np.ndarray]]


class Ours:
    """Our model on the backend's device, and its optimizer."""

    def __init__(self, model: GPT, backend: NumPyBackend) -> None:
        self.backend, self.model = backend, model.to(backend)
        self.optimizer = AdamW(self.model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)

    def step(self, ids: np.ndarray, targets: np.ndarray) -> float:
        loss, cache = self.model.loss(ids, targets)
        self.optimizer.step(self.model.backward(cache))
        return float(loss)

    def parts(self, ids: np.ndarray, targets: np.ndarray) -> dict[str, tuple[float, float]]:
        """Seconds of each part of one step: until the call returns, and until the GPU has finished."""
        found, results = {}, {}

        def timed(name: str, call: Callable[[], Any]) -> None:
            self.backend.synchronize()
            start = time.perf_counter()
            results[name] = call()
            called = time.perf_counter() - start
            self.backend.synchronize()
            found[name] = called, time.perf_counter() - start

        timed("forward", lambda: self.model.loss(ids, targets))
        timed("backward", lambda: self.model.backward(results["forward"][1]))
        timed("optimizer", lambda: self.optimizer.step(results["backward"]))
        return found


class Theirs:
    """PyTorch's model with the same weights, and its fused AdamW."""

    def __init__(self, model: GPT, device: str) -> None:
        import torch

        from tests.benchmarks.torch_gpt import TorchRun

        torch.set_float32_matmul_precision("highest")
        self.torch, self.device = torch, device
        self.run = TorchRun(model, RATE, BETA_2, DECAY)
        self.run.model.to(device)

    def step(self, ids: np.ndarray, targets: np.ndarray) -> float:
        tensors = [self.torch.from_numpy(array).to(self.device) for array in (ids, targets)]
        self.run.optimizer.zero_grad(set_to_none=True)
        loss = self.run.model(*tensors)
        loss.backward()
        self.run.optimizer.step()
        return float(loss.item())


def seconds_per_step(step: Callable[..., float], batches: Batches) -> float:
    """Seconds per step. Each step copies its loss to the host, so the GPU has finished when the clock is read."""
    start = time.perf_counter()
    for batch in batches:
        step(*batch)
    return (time.perf_counter() - start) / len(batches)


def measure(d_model: int, backend: NumPyBackend, rounds: int, against_torch: bool) -> list[str]:
    V, T, B, layers, heads = SIZES[d_model]
    rng = np.random.default_rng(0)
    batches = [tuple(rng.integers(0, V, (2, B, T))) for _ in range(4)]
    model = GPT(GPTConfig(V, T, d_model, heads, layers), np.random.default_rng(1))
    contenders: dict[str, Any] = {}
    if against_torch:  # copies the weights while they are on the host
        contenders["theirs"] = Theirs(model, "cuda" if backend.name == "cupy" else "cpu")
    contenders["ours"] = ours = Ours(model, backend)
    losses = {name: [contender.step(*batch) for batch in batches[:3]] for name, contender in contenders.items()}
    for mine, other in zip(losses["ours"], losses.get("theirs", losses["ours"]), strict=True):
        if abs(mine - other) > 1e-3 * other:
            raise SystemExit(f"width {d_model}: the two models do not do the same work: their losses are {losses}")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds):
        for name in list(contenders) if i % 2 else list(contenders)[::-1]:
            times[name].append(seconds_per_step(contenders[name].step, batches))
    rate = {name: B * T / statistics.median(seconds) for name, seconds in times.items()}
    parts = [ours.parts(*batches[i % 4]) for i in range(5)][1:]
    where = [
        f"{name} {1e3 * statistics.median(p[name][0] for p in parts):.1f} / "
        f"{1e3 * statistics.median(p[name][1] for p in parts):.1f}"
        for name in parts[0]
    ]
    theirs = f"{rate['theirs']:,.0f}" if against_torch else "not run"
    ratio = f"{rate['ours'] / rate['theirs']:.2f}" if against_torch else ""
    memory = f"{backend.memory().used / 2**20:,.0f}"
    return [str(d_model), f"{rate['ours']:,.0f}", theirs, ratio, ", ".join(where), memory]


def main() -> None:
    parser = argparse.ArgumentParser(description="tokens per second of a GPT's training step on a GPU")
    parser.add_argument("widths", nargs="*", type=int, default=list(SIZES), help="128, 384, 768 (default: all)")
    parser.add_argument("--backend", default="cupy", choices=NAMES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--without-torch", action="store_true", help="time only our model")
    args = parser.parse_args()
    for width in args.widths:
        if width not in SIZES:
            parser.error(f"there is no width {width}; there are {', '.join(map(str, SIZES))}")
    try:
        backend = get_backend(args.backend)
    except BackendError as error:
        raise SystemExit(f"bench_gpu: {error}") from None
    print(backend.describe() + "\n")
    head = ["width", "numpy_attention, tokens/s", "PyTorch, tokens/s", "ratio", "ms called / done", "MiB"]
    table(head, (measure(width, backend, args.rounds, not args.without_torch) for width in args.widths))


if __name__ == "__main__":
    main()
