"""The tables of docs/recurrence_speed.md: attention as a recurrence against tiled attention, forward and backward.

    OPENBLAS_NUM_THREADS=1 python -m tests.benchmarks.recurrence_speed      # five minutes on one core

In each round all contenders run once, in changing order, so a slow minute slows all of them. A ratio is computed in
each round; the table shows medians over the rounds. The second table compares chunk sizes in separate rounds, so it
shows no seconds, only quotients of medians. The memory is the largest amount of memory that a step holds at once,
without its inputs; it is measured in a separate step.
"""

import statistics
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na
from tests.benchmarks.__main__ import machine
from tests.generated import with_block

PAGE = Path(__file__).parents[2] / "docs" / "recurrence_speed.md"
HEADS, WIDTH, ROUNDS = 8, 64, 5
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16_384)
CHUNK, CHUNKS, AT_LENGTH = 64, (16, 32, 64, 128, 256), 4096
TILES, LINEAR, DELTA, TOKENS = "tiles", "linear rule", "gated delta rule", "gated delta rule, token by token"
LAST = {TOKENS: 1024}  # token by token stores a state for each token
Step = Callable[[], Any]


def arrays(T: int) -> dict[str, np.ndarray]:
    """Random inputs in float32: keys of length 1, decays and betas as at the start of training."""
    rng = np.random.default_rng(T)
    q, k, v, dy = rng.standard_normal((4, 1, HEADS, T, WIDTH), np.float32)
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    decay, beta = rng.random((2, 1, HEADS, T, 1), np.float32)
    return {"q": q, "k": k, "v": v, "decay": -0.1 * decay, "beta": beta, "dy": dy}


def steps(T: int, chunk_size: int = CHUNK) -> dict[str, Step]:
    """A training step, forward and backward, of each contender."""
    x = arrays(T)
    qkv, dy, gates = (x["q"], x["k"], x["v"]), x["dy"], {"decay": x["decay"], "beta": x["beta"]}
    chunks = {"chunk_size": chunk_size}

    def step(op: Any, backward: Any, options: dict[str, Any]) -> Step:
        return lambda: backward(dy, op(*qkv, **options)[1])

    chunked = na.chunked_linear_attention, na.chunked_linear_attention_backward
    found = {
        TILES: step(na.tiled_attention, na.tiled_attention_backward, {"causal": True}),
        LINEAR: step(*chunked, chunks),
        DELTA: step(*chunked, chunks | gates),
        TOKENS: step(na.linear_attention, na.linear_attention_backward, gates),
    }
    return {name: one for name, one in found.items() if LAST.get(name, T) >= T}


def seconds(contenders: dict[Any, Step], rounds: int) -> dict[Any, list[float]]:
    """The seconds of each contender in each round, after one step that is not counted."""
    found: dict[Any, list[float]] = {name: [] for name in contenders}
    for round_ in range(-1, rounds):
        names = list(contenders)[:: 1 if round_ % 2 else -1]
        for name in names:
            start = time.perf_counter()
            contenders[name]()
            if round_ >= 0:
                found[name].append(time.perf_counter() - start)
    return found


def megabytes(step: Step) -> float:
    """The peak memory of one step in MB; only arrays made in the step count."""
    tracemalloc.start()
    step()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 1e6


def measure(lengths: tuple[int, ...] = LENGTHS, at_length: int = AT_LENGTH, rounds: int = ROUNDS) -> dict[str, Any]:
    """All results."""
    rows = []
    for T in lengths:
        contenders = steps(T)
        memory = {name: megabytes(step) for name, step in contenders.items()}
        rows.append({"T": T, "seconds": seconds(contenders, rounds), "megabytes": memory})
        print(rows[-1], flush=True)
    by_size = {(size, name): steps(at_length, size)[name] for size in CHUNKS for name in (LINEAR, DELTA)}
    memory_of = {key: megabytes(step) for key, step in by_size.items()}
    seconds_of = seconds(by_size, rounds)
    chunks = [
        {
            "chunk_size": size,
            "megabytes": {name: memory_of[size, name] for name in (LINEAR, DELTA)},
            "seconds": {name: seconds_of[size, name] for name in (LINEAR, DELTA)},
        }
        for size in CHUNKS
    ]
    return {"at_length": at_length, "rows": rows, "chunks": chunks}


def ratio(row: dict[str, Any], name: str) -> float:
    """The median over the rounds of a contender's seconds divided by the seconds of tiles."""
    return statistics.median(a / b for a, b in zip(row["seconds"][name], row["seconds"][TILES], strict=True))


def ahead(rows: list[dict[str, Any]], name: str) -> str:
    """From which length on a contender is faster than tiles."""
    slower = [row["T"] for row in rows if ratio(row, name) >= 1]
    faster = [row["T"] for row in rows if row["T"] > max(slower, default=0)]
    return f"from T = {faster[0]:,} on" if faster else "at none of these lengths"


def table(found: dict[str, Any]) -> str:
    """The block of the page."""
    rows = found["rows"]
    lines = [
        f"{machine(1)}.", "",
        f"The linear rule is faster than tiles {ahead(rows, LINEAR)}, the gated delta rule {ahead(rows, DELTA)}.", "",
        ("| T | tiles, s | linear rule, s | ratio | gated delta rule, s | ratio | its seconds for 1,000 tokens "
         "| token by token, s | tiles, MB | linear, MB | gated delta, MB | token by token, MB |"),
        "|---" * 12 + "|",
    ]
    for row in rows:
        s = {name: f"{statistics.median(many):.3f}" for name, many in row["seconds"].items()}
        mb = {name: f"{many:,.0f}" for name, many in row["megabytes"].items()}
        each = 1000 * statistics.median(row["seconds"][DELTA]) / row["T"]
        cells = [
            f"{row['T']:,}", s[TILES], s[LINEAR], f"{ratio(row, LINEAR):.2f}", s[DELTA], f"**{ratio(row, DELTA):.2f}**",
            f"{each:.3f}", s.get(TOKENS, "–"), mb[TILES], mb[LINEAR], mb[DELTA], mb.get(TOKENS, "–"),
        ]  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    usual = next(one["seconds"] for one in found["chunks"] if one["chunk_size"] == CHUNK)
    about = f"{found['at_length']:,}; each time is divided by the time with chunks of {CHUNK} tokens"
    lines += ["", f"Other chunk sizes, for T = {about}:", "",
              "| tokens of a chunk | linear rule | gated delta rule | linear, MB | gated delta, MB |",
              "|---|---|---|---|---|"]  # fmt: skip
    for one in found["chunks"]:
        medians = [[statistics.median(s[name]) for s in (one["seconds"], usual)] for name in (LINEAR, DELTA)]
        ratios = [f"{this / other:.2f}" for this, other in medians]
        mb = [f"{one['megabytes'][name]:,.0f}" for name in (LINEAR, DELTA)]
        lines.append(f"| {' | '.join([str(one['chunk_size']), *ratios, *mb])} |")
    return "\n".join(lines)


if __name__ == "__main__":
    PAGE.write_text(with_block(PAGE.read_text("utf-8"), "recurrence speed", table(measure())), "utf-8")
