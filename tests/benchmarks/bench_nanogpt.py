"""nanoGPT's CPU settings: our model and PyTorch's, trained on the same batches of the default text.

    python -m tests.benchmarks.bench_nanogpt                 # 2,000 steps: minutes
    python -m tests.benchmarks.bench_nanogpt --steps 100

4 layers, 4 heads, width 128, blocks of 64, batches of 12, learning rate 1e-3 to 1e-4 by a cosine after 100 steps of
warm-up, beta2 0.99, clipping at 1, no dropout. Both models start from the same weights and take turns of 20 steps. The
last lines show the held-out loss of both models, in nats per character, and the time of their steps.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.data import consecutive_blocks
from numpy_attention.training.tasks.text import TextTask
from numpy_attention.training.trainer import BATCH, Trainer, generator
from tests.benchmarks.report import machine
from tests.benchmarks.timing import torch_with

TURN = 20


def main() -> None:
    parser = argparse.ArgumentParser(description="nanoGPT's CPU settings: our model and PyTorch's, same batches")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch = torch_with(args.threads)
    from tests.benchmarks.torch_gpt import TorchRun

    config = TrainConfig(
        seed=args.seed, steps=args.steps, batch=12, workers=args.threads, layers=4, heads=4, d_model=128, context=64,
        positions="learned", learning_rate=1e-3, min_learning_rate=1e-4, warmup=100, beta2=0.99, weight_decay=0.1,
        clip=1.0, dropout=0.0,
    )
    task = TextTask(config)
    trainer = Trainer(config, task, Path(tempfile.gettempdir()))   # we use only its steps, which write no file
    theirs = TorchRun(trainer.model, config.learning_rate, config.beta2, config.weight_decay, config.clip)
    print(f"{machine(args.threads)}; PyTorch {torch.__version__}")
    print(task.description())

    seconds: dict[str, list[float]] = {"numpy_attention": [], "PyTorch eager": []}
    with trainer.workers as workers:
        for start in range(0, args.steps, TURN):
            steps = range(start, min(start + TURN, args.steps))
            begin = time.perf_counter()
            ours = [trainer.one_step()[0] for _ in steps]
            seconds["numpy_attention"].append(time.perf_counter() - begin)
            begin = time.perf_counter()
            other = [theirs.step(*task.batch(generator(config, BATCH, step)), trainer.rate(step)) for step in steps]
            seconds["PyTorch eager"].append(time.perf_counter() - begin)
            if start == 0:
                first = ", ".join(f"{a:.5f} / {b:.5f}" for a, b in zip(ours[:3], other[:3], strict=True))
                print(f"first losses, ours / PyTorch's: {first}")
                if not np.allclose(ours[:3], other[:3], rtol=2e-4):
                    raise SystemExit("the two models do not do the same work")
            if start % 200 == 0 or steps.stop == args.steps:
                sums = ", ".join(f"{name} {sum(turns):.1f} s" for name, turns in seconds.items())
                print(f"step {steps.stop}: losses {ours[-1]:.4f} / {other[-1]:.4f}; {sums}", flush=True)
        held_out = {"numpy_attention": task.evaluate(trainer.model, workers)["val_loss"]}

    blocks = list(consecutive_blocks(task.held_out_ids, config.context, 32))
    losses = [theirs.loss(*block) for block in blocks]
    held_out["PyTorch eager"] = float(np.average(losses, weights=[targets.size for _, targets in blocks]))
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    print(f"\n| {args.steps} steps | held-out loss, nats per character | seconds | median turn times turns |")
    print("|---|---|---|---|")
    for name, turns in seconds.items():
        usual = statistics.median(turns) * len(turns)
        print(f"| {name} | {held_out[name]:.4f} | {sum(turns):.1f} | {usual:.1f} |")
    low, high = np.quantile(ratios, (0.25, 0.75))
    print(f"\ntime, ours / PyTorch's: {statistics.median(ratios):.2f} ({low:.2f} to {high:.2f}, turns of {TURN} steps)")
    counting = ", ".join(f"{name} {loss:.3f}" for name, loss in task.reference_lines().items())
    print(f"n-gram predictors: {counting}")


if __name__ == "__main__":
    main()
