"""A GPT's training step on a GPU, in tokens a second: these chapters on CuPy against PyTorch on the same card.

    pip install 'cupy-cuda12x[ctk]' torch
    python -m tests.benchmarks.bench_gpu                     # widths 128, 384 and 768
    python -m tests.benchmarks.bench_gpu 128 --rounds 20
    python -m tests.benchmarks.bench_gpu 128 --backend numpy # tries the script where there is no GPU

Both sides start from the same weights, see the same batches, compute in float32 without TF32, and wait for the GPU once
a step. Their first three losses must agree. The sides take turns, and medians over the rounds are told.

Where the time goes: each part of our step is timed once until the call returns ("asked") and once until the GPU is
done ("done"). Where the two are nearly equal, the GPU waits for Python to ask: launches cost more than the work.
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
    """The model on the backend's device, and its optimizer."""

    def __init__(self, model: GPT, backend: NumPyBackend) -> None:
        self.backend, self.model = backend, model.to(backend)
        self.optimizer = AdamW(self.model.parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY)

    def step(self, ids: np.ndarray, targets: np.ndarray) -> float:
        loss, cache = self.model.loss(ids, targets)
        self.optimizer.step(self.model.backward(cache))
        return float(loss)

    def parts(self, ids: np.ndarray, targets: np.ndarray) -> dict[str, tuple[float, float]]:
        """Seconds of each part of one step, until asked and until done."""
        found, kept = {}, {}

        def timed(name: str, call: Callable[[], Any]) -> None:
            self.backend.synchronize()
            start = time.perf_counter()
            kept[name] = call()
            asked = time.perf_counter() - start
            self.backend.synchronize()
            found[name] = asked, time.perf_counter() - start

        timed("forward", lambda: self.model.loss(ids, targets))
        timed("backward", lambda: self.model.backward(kept["forward"][1]))
        timed("optimizer", lambda: self.optimizer.step(kept["backward"]))
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
        there = [self.torch.from_numpy(array).to(self.device) for array in (ids, targets)]
        self.run.optimizer.zero_grad(set_to_none=True)
        loss = self.run.model(*there)
        loss.backward()
        self.run.optimizer.step()
        return float(loss.item())


def seconds_a_step(step: Callable[..., float], batches: Batches) -> float:
    """Each step ends with a look at its loss, so that the GPU is done when the clock is read."""
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
    if against_torch:  # copied from the host's weights, before they move
        contenders["theirs"] = Theirs(model, "cuda" if backend.name == "cupy" else "cpu")
    contenders["ours"] = ours = Ours(model, backend)
    losses = {name: [contender.step(*batch) for batch in batches[:3]] for name, contender in contenders.items()}
    for mine, other in zip(losses["ours"], losses.get("theirs", losses["ours"]), strict=True):
        if abs(mine - other) > 1e-3 * other:
            raise SystemExit(f"width {d_model}: the losses are {losses}: not the same work")
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for i in range(rounds):
        for name in list(contenders) if i % 2 else list(contenders)[::-1]:
            times[name].append(seconds_a_step(contenders[name].step, batches))
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
    parser = argparse.ArgumentParser(description="tokens a second of a GPT's training step on a GPU")
    parser.add_argument("widths", nargs="*", type=int, default=list(SIZES), help="of 128, 384, 768; default: all")
    parser.add_argument("--backend", default="cupy", choices=NAMES)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--without-torch", action="store_true", help="time our side alone")
    args = parser.parse_args()
    for width in args.widths:
        if width not in SIZES:
            parser.error(f"no width {width}; there are {', '.join(map(str, SIZES))}")
    try:
        backend = get_backend(args.backend)
    except BackendError as error:
        raise SystemExit(f"bench_gpu: {error}") from None
    print(backend.describe() + "\n")
    head = ["width", "numpy_attention, tokens/s", "PyTorch, tokens/s", "ratio", "ms asked / done", "MiB"]
    table(head, (measure(width, backend, args.rounds, not args.without_torch) for width in args.widths))


if __name__ == "__main__":
    main()
