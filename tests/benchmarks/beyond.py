"""The measurements of Part VIII: learning from rewards, experts, Muon, and weights of two bits.

    python -m tests.benchmarks.beyond rewards      # 12 minutes on two cores: five seeds of answers, grpo and dpo
    python -m tests.benchmarks.beyond experts      # 18 minutes: experts beside dense models, on the help topics
    python -m tests.benchmarks.beyond muon         # 35 minutes: Muon beside AdamW, on the help topics
    python -m tests.benchmarks.beyond two_bits     # 3 minutes: straight-through rounding, on the task answers
    python -m tests.benchmarks.beyond tables       # writes the tables and pictures again, from runs/beyond

Each writes its numbers to a file in runs/beyond, then its tables into docs/beyond_measured.md and its pictures into
docs/_static. Runs use one thread each, two at a time.
"""

import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import LinearSegmentedColormap

import numpy_attention as na
from numpy_attention.app import plots
from numpy_attention.beyond.c51a_answers import AnswersTask
from numpy_attention.threads import blas_threads
from numpy_attention.training.c26_schedules import warmup_cosine
from numpy_attention.training.c28_loop import take_step
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.tasks.text import TextTask
from tests.generated import with_block

ROOT = Path(__file__).parents[2]
RUNS, PICTURES = ROOT / "runs" / "beyond", ROOT / "docs" / "_static"
PAGE = ROOT / "docs" / "beyond_measured.md"
Result = dict[str, Any]


def in_processes(work: Callable[..., Any], jobs: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The results of the jobs, two at a time, each in its own process."""
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.starmap(work, list(jobs), chunksize=1)


# rewards


def learn(seed: int) -> Result:
    """The commands of tutorial 24 for one seed: the logs of the three runs."""
    folder = RUNS / f"rewards-{seed}"
    logs = {}
    for task in ("answers", "grpo", "dpo"):
        command = [sys.executable, "-m", "numpy_attention", "train", "--task", task, "--seed", str(seed)]
        command += ["--out", str(folder / task), "--workers", "1"]
        command += ["--steps", "320"] if task == "answers" else ["--from", str(folder / "answers")]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        logs[task] = read_log(folder / task / "log.jsonl")
    return {"logs": logs}


def rewards() -> Result:
    """Five seeds."""
    return {"runs": in_processes(learn, [(seed,) for seed in range(5)])}


def show_rewards(found: Result) -> None:
    """The table by seed, and the picture of reward, entropy and KL."""
    lines = [
        "| seed | start: drawn | most probable | GRPO: drawn | most probable | DPO: drawn | most probable |",
        "|---|---|---|---|---|---|---|",
    ]
    for seed, run in enumerate(found["runs"]):
        ends = [run["logs"][task][-1] for task in ("answers", "grpo", "dpo")]
        cells = [f"{end[name]:.1%}" for end in ends for name in ("val_reward", "val_exact")]
        lines.append(f"| {seed} | {' | '.join(cells)} |")
    write("rewards by seed", "\n".join(lines))
    panels: dict[str, dict[str, Any]] = {}
    names = {"val_reward": "right answers, drawn", "entropy": "entropy (nats per token)", "kl": "KL (nats per token)"}
    for name, title in names.items():
        panels[title] = {}
        for task in ("grpo", "dpo"):
            rows = [[row for row in run["logs"][task] if name in row] for run in found["runs"]]
            steps = [row["step"] for row in rows[0]]
            mean = [statistics.fmean(run[i][name] for run in rows) for i in range(len(steps))]
            start = statistics.fmean(run["logs"]["answers"][-1].get(name, 0.0) for run in found["runs"])
            panels[title][task.upper()] = ([0, *steps], [start, *mean])
    picture(panels, "step", "", "rewards.svg")


# experts and Muon: models on the help topics

SIZES: dict[str, Any] = {
    "context_length": 256, "d_model": 128, "num_heads": 4, "num_layers": 4, "positions": "rotary", "norm": "rms_norm",
    "activation": "swiglu", "bias": False,
}
MODELS = {  # the width of the feed-forward networks: one expert, or the dense network
    "8 experts, 2 for each token": {"d_ff": 128, "num_experts": 8, "top_k": 2, "balance": 0.01},
    "8 experts without balance": {"d_ff": 128, "num_experts": 8, "top_k": 2, "balance": 0.0},
    "dense, equal active parameters": {"d_ff": 256},
    "dense, equal total parameters": {"d_ff": 1024},
}


def on_text(
    model: Any, optimizer: Any, rate: float, steps: int, seed: int, every: int, watch: Callable[[], Any] | None = None
) -> Result:
    """Train on the help topics with the batches of `train`; the held-out loss by step and by second of training."""
    config = TrainConfig(seed=seed)
    task, seconds, found = TextTask(config), 0.0, []
    with Workers(1) as workers:
        for step in range(steps):
            batch = task.batch(np.random.default_rng([seed, 1, step]))
            started = time.perf_counter()
            loss, cache = model.loss(*batch, training=True)
            grads = model.backward(cache)
            take_step(optimizer, loss, grads, warmup_cosine(step, steps, 100, rate, 1e-4), 1.0)
            seconds += time.perf_counter() - started
            if (step + 1) % every == 0:
                row = {"step": step + 1, "seconds": seconds, "loss": task.evaluate(model, workers)["val_loss"]}
                found.append(row | ({"watched": watch()} if watch else {}))
    return {"rows": found, "parameters": model.num_parameters()}


def with_experts(name: str, seed: int) -> Result:
    """One model of the table; for experts also the share of the tokens of each expert, on one held-out batch."""
    task, options = TextTask(TrainConfig(seed=seed)), SIZES | MODELS[name]
    kind = na.ExpertsGPT if "num_experts" in options else na.RecentGPT
    model = kind(kind.config_class(vocab_size=len(task.vocabulary), **options), np.random.default_rng([seed, 0]))
    ids = task.held_out_ids[: 8 * 256].reshape(8, 256)

    def loads() -> list[list[float]]:
        blocks = model.states(ids).stack.blocks
        chosen = [block.feed_forward.sublayer.sublayer.route.experts for block in blocks]
        return [(np.bincount(one.reshape(-1), minlength=8) / one.size).tolist() for one in chosen]

    optimizer = na.AdamW(model.parameters(), beta_2=0.99, weight_decay=0.1)
    with blas_threads(1):
        watch = loads if kind is na.ExpertsGPT else None
        run = on_text(model, optimizer, 4e-3, 300, seed, 30, watch) | {"name": name, "seed": seed}
    (RUNS / f"experts {name} {seed}.json").write_text(json.dumps(run), "utf-8")
    return run


def experts() -> Result:
    """Two seeds of each model."""
    return {"runs": in_processes(with_experts, [(name, seed) for seed in range(2) for name in MODELS])}


def show_experts(found: Result) -> None:
    """The table of losses, the loss by step, and the load of the experts."""
    lines = ["| model | parameters | for one token | loss, seed 0 | seed 1 | seconds for a step |"]
    lines += ["|---|---|---|---|---|---|"]
    curves = {}
    for name, options in MODELS.items():
        runs = [run for run in found["runs"] if run["name"] == name]
        total = runs[0]["parameters"]
        idle = 0 if "num_experts" not in options else 4 * (options["num_experts"] - options["top_k"]) * 3 * 128 * 128
        losses = [f"{run['rows'][-1]['loss']:.3f}" for run in runs]
        pace = statistics.fmean(run["rows"][-1]["seconds"] / run["rows"][-1]["step"] for run in runs)
        lines.append(f"| {name} | {total:,} | {total - idle:,} | {' | '.join(losses)} | {pace:.2f} |")
        steps = [row["step"] for row in runs[0]["rows"]]
        curves[name] = (steps, [statistics.fmean(run["rows"][i]["loss"] for run in runs) for i in range(len(steps))])
    write("experts beside dense models", "\n".join(lines))
    picture({"held-out loss, mean of two seeds": curves}, "step", "nats per character", "experts-loss.svg")
    figure = plots.new_figure(11.0, 6.0)
    white_to_blue = LinearSegmentedColormap.from_list("cells", plots.COLOURS_OF_CELLS[1:])
    for name, row in zip(list(MODELS)[:2], figure.subplots(2, 4)):
        run = next(run for run in found["runs"] if run["name"] == name and run["seed"] == 0)
        loads = np.array([row["watched"] for row in run["rows"]])  # (rows, layers, experts)
        last = run["rows"][-1]["step"]
        for block, axes in enumerate(row):
            cells = {"vmin": 0.0, "vmax": 0.5, "aspect": "auto", "extent": (0, last, 7.5, -0.5)}
            image = axes.imshow(loads[:, block].T, cmap=white_to_blue, **cells)
            kind = "without balance" if "without" in name else "with balance"
            plots.dress(axes, f"block {block}, {kind}", "step", "expert")
    figure.colorbar(image, ax=figure.axes, label="share of the choices")
    plots.save(figure, PICTURES / "experts-load.svg")


OPTIMIZERS = {"AdamW": (na.AdamW, {"beta_2": 0.99}), "Muon": (na.Muon, {"beta_2": 0.99})}
RATES = (2e-3, 4e-3, 8e-3, 16e-3)


def with_optimizer(name: str, rate: float, steps: int, seed: int) -> Result:
    """The default GPT of `train` with one optimizer."""
    task = TextTask(TrainConfig(seed=seed))
    model = task.model(np.random.default_rng([seed, 0]))
    kind, options = OPTIMIZERS[name]
    with blas_threads(1):
        run = on_text(model, kind(model.parameters(), weight_decay=0.1, **options), rate, steps, seed, steps // 12)
    return run | {"name": name, "rate": rate, "seed": seed}


def muon() -> Result:
    """The best of four learning rates for each in short runs, then three seeds of longer runs."""
    short = in_processes(with_optimizer, [(name, rate, 300, 0) for rate in RATES for name in OPTIMIZERS])
    best = {
        name: min((run for run in short if run["name"] == name), key=lambda run: run["rows"][-1]["loss"])["rate"]
        for name in OPTIMIZERS
    }
    runs = in_processes(with_optimizer, [(name, best[name], 600, seed) for seed in range(3) for name in OPTIMIZERS])
    return {"short": short, "runs": runs}


def show_muon(found: Result) -> None:
    """The learning rates, the losses of all seeds, and the loss by step and by second."""
    lines = [f"| loss after 300 steps, learning rate | {' | '.join(map(str, RATES))} |"]
    lines += ["|---" * (len(RATES) + 1) + "|"]
    for name in OPTIMIZERS:
        at = {run["rate"]: f"{run['rows'][-1]['loss']:.3f}" for run in found["short"] if run["name"] == name}
        lines.append(f"| {name} | {' | '.join(at[rate] for rate in RATES)} |")
    lines += ["", "| 600 steps | rate | seed 0 | seed 1 | seed 2 | seconds for a step |", "|---|---|---|---|---|---|"]
    by_step, by_second = {}, {}
    for name in OPTIMIZERS:
        runs = [run for run in found["runs"] if run["name"] == name]
        losses = [f"{run['rows'][-1]['loss']:.3f}" for run in runs]
        pace = statistics.fmean(run["rows"][-1]["seconds"] / 600 for run in runs)
        lines.append(f"| {name} | {runs[0]['rate']} | {' | '.join(losses)} | {pace:.3f} |")
        rows = range(len(runs[0]["rows"]))
        mean = {
            key: [statistics.fmean(run["rows"][i][key] for run in runs) for i in rows]
            for key in ("step", "seconds", "loss")
        }
        by_step[name], by_second[name] = (mean["step"], mean["loss"]), (mean["seconds"], mean["loss"])
    write("muon beside adamw", "\n".join(lines))
    picture({"by step": by_step, "by second of training": by_second}, "", "held-out loss", "muon.svg")


def scale_of(w: np.ndarray, bits: int) -> float:
    return float(1.5 * np.abs(w).mean() if bits == 2 else np.abs(w).max() / (2 ** (bits - 1) - 1))


def rounded(seed: int) -> Result:
    """The task answers in floats, rounded after training, and with straight-through rounding in training."""
    task = AnswersTask(TrainConfig(task="answers", context=12, seed=seed))
    steps = 1500

    def model() -> Any:
        config = na.GPTConfig(
            vocab_size=11, context_length=12, d_model=64, num_heads=2, num_layers=2, d_ff=128, positions="rotary"
        )
        return na.GPT(config, np.random.default_rng([seed, 0]))

    def matrices(one: Any) -> dict[str, np.ndarray]:
        return {name: p for name, p in one.parameters().items() if name.startswith("blocks.") and p.ndim == 2}

    def exact(one: Any, bits: int) -> float:
        copy = model()
        copy.load_parameters(one.parameters())
        for w in matrices(copy).values() if bits else ():
            w[...] = na.fake_quantize(w, scale_of(w, bits), bits)[0]
        return float(task.rewards(task.written(copy, task.test, None)).mean())

    def trained(bits: int) -> Any:
        one = model()
        optimizer = na.AdamW(one.parameters(), weight_decay=0.0)
        for step in range(steps):
            batch = task.inputs(task.right(task.questions(64, np.random.default_rng([seed, 1, step]))))
            kept, caches = {name: w.copy() for name, w in matrices(one).items()}, {}
            for name, w in matrices(one).items() if bits else ():
                w[...], caches[name] = na.fake_quantize(w, scale_of(w, bits), bits)
            loss, cache = one.loss(*batch)
            grads = one.backward(cache)
            for name, of_rounding in caches.items():
                grads[name] = na.fake_quantize_backward(grads[name], of_rounding)
                matrices(one)[name][...] = kept[name]
            take_step(optimizer, loss, grads, warmup_cosine(step, steps, 50, 3e-3, 1e-4), 1.0)
        return one

    with blas_threads(1):
        floats, two = trained(0), trained(2)
        found = {f"{bits} bits after training": exact(floats, bits) for bits in (8, 4, 2)}
        return {"floats": exact(floats, 0), **found, "2 bits in training, straight-through": exact(two, 2)}


def two_bits() -> Result:
    """Three seeds."""
    return {"runs": in_processes(rounded, [(seed,) for seed in range(3)])}


def show_two_bits(found: Result) -> None:
    """The table of right answers."""
    lines = ["| weights of the blocks | right answers, seed 0 | seed 1 | seed 2 |", "|---|---|---|---|"]
    runs = found["runs"]
    lines += [f"| {name} | {' | '.join(f'{run[name]:.1%}' for run in runs)} |" for name in runs[0]]
    write("weights of two bits", "\n".join(lines))


def write(name: str, content: str) -> None:
    print(f"{name}\n{content}\n")
    PAGE.write_text(with_block(PAGE.read_text("utf-8"), name, content), "utf-8")


def picture(panels: Any, x: str, y: str, name: str, levels: Any = None) -> None:
    plots.save(plots.line_panels(panels, x, y, levels), PICTURES / name)


MEASURE = {"rewards": rewards, "experts": experts, "muon": muon, "two_bits": two_bits}
SHOW = {"rewards": show_rewards, "experts": show_experts, "muon": show_muon, "two_bits": show_two_bits}


def main(name: str) -> None:
    """Measure and show one part, or show all that is stored."""
    RUNS.mkdir(parents=True, exist_ok=True)
    if name != "tables":
        (RUNS / f"{name}.json").write_text(json.dumps(MEASURE[name]()), "utf-8")
    for one in MEASURE if name == "tables" else [name]:
        if (RUNS / f"{one}.json").exists():
            SHOW[one](json.loads((RUNS / f"{one}.json").read_text("utf-8")))


if __name__ == "__main__":
    main(sys.argv[1])
