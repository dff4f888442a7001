"""The tables of docs/performance.md and the README's sentence on speed. They are written from five stored results: the
benchmark, the benchmark with a real model and on a busy machine, a profile (profile_step.py), and the loss by position
(loss_by_position.py).

    python -m tests.benchmarks import steps ops attention generation long --json tests/benchmarks/performance.json
    python -m tests.benchmarks pretrained --json tests/benchmarks/pretrained.json
    python -m tests.benchmarks busy --json tests/benchmarks/busy.json
    python -m tests.benchmarks.performance_page

The first command also runs our steps on the Python that NUMPY_ATTENTION_FREE_THREADED names.
"""

import json
from pathlib import Path

from tests.benchmarks import report
from tests.benchmarks.race import FREE_THREADED, Result
from tests.benchmarks.report import megabytes, milliseconds
from tests.benchmarks.work import bytes_of_all_weights
from tests.generated import with_block

ROOT = Path(__file__).parents[2]
RESULTS, OF_PRETRAINED, BUSY, PROFILE, BY_POSITION = (
    Path(__file__).with_name(f"{name}.json")
    for name in ("performance", "pretrained", "busy", "profile_step", "loss_by_position")
)
PAGE, README = ROOT / "docs" / "performance.md", ROOT / "README.md"
PICTURE = ROOT / "docs" / "_static" / "attention-cost.svg"

PEER, COMPILED, OURS, FLOOR = "PyTorch eager", "torch.compile", "numpy_attention", "products alone"
RANKS = "numpy_attention, ranks"
EARLIER = "0.85 to 1.05 times on an AMD EPYC"  # an earlier run, whose results are no longer stored
ATTENDERS = {
    PEER: "PyTorch SDPA", OURS: OURS, "plain NumPy": "plain NumPy",
    "torch softmax(QK)V": "PyTorch softmax(QK)V", "JAX jit": "JAX jit",
}  # fmt: skip
SIZES = {
    "nano": "nano: 2 layers of 64", "micro": "micro: 4 layers of 128", "small": "small: 6 layers of 384",
    "gpt2": "gpt2: 12 layers of 768, 50,257 tokens",
}  # fmt: skip


def races(found, kind):
    """The cases of one kind, each with its results by contender."""
    return [
        (race["case"], {name: Result(**result) for name, result in race["results"].items()})
        for race in found["races"] if race["case"]["kind"] == kind
    ]  # fmt: skip


def page_tables(found):
    """The blocks of docs/performance.md, by the names of the markers around them."""
    return {"speed": speed(found), "more speed": more_speed(found), "steps": steps(found),
            "attention": attention(found), "long": as_printed(found, "long"),
            "generation": generation(found), "ops": ops(found)}  # fmt: skip


def readme_sentence(found):
    """The block of the README."""
    ratios = [results[OURS].ratio for _, results in races(found, "step")]
    low, high = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    processor = found["machine"].split(", ")[0].replace("(R)", "")
    return [
        f"A training step takes {low} to {high} times as long as PyTorch eager's ({processor}),",
        f"and {EARLIER}: [how fast, and why](docs/performance.md).",
    ]


def table(head, rows):
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def steps(found):
    rows = []
    for case, results in races(found, "step"):
        for name, r in results.items():
            ratio = f"**{r.ratio:.2f}**" if name == OURS else f"{r.ratio:.2f}"
            time = f"{milliseconds(r.seconds)}\N{NO-BREAK SPACE}({milliseconds(r.low)}–{milliseconds(r.high)})"
            rows.append([case["size"], name, time, ratio, f"{r.seconds / results[FLOOR].seconds:.2f}",
                         megabytes(r.peak), megabytes(r.beyond_start)])  # fmt: skip
    head = ["size", "", "ms", "ratio to PyTorch eager", "ratio to the products", "peak memory, MB",
            "without the libraries, MB"]  # fmt: skip
    return [f"Measured on this machine: {found['machine']}.", "", *table(head, rows)]


def attention(found):
    times, memory = [], []
    for causal in (True, False):
        for case, results in races(found, "attention"):
            if case["causal"] != causal:
                continue
            known = [results.get(name) for name in ATTENDERS]
            T = f"{case['T']:,}"
            times.append([T, "causal" if causal else "full", *(milliseconds(r.seconds) if r else "–" for r in known),
                          f"**{results[OURS].ratio:.2f}**"])  # fmt: skip
            if causal:
                memory.append([T, *(megabytes(r.extra) if r else "–" for r in known)])
    return ["Milliseconds:", "", *table(["T", "", *ATTENDERS.values(), "ours / SDPA"], times), "",
            "Megabytes beyond the inputs, causal:", "", *table(["T", *ATTENDERS.values()], memory)]  # fmt: skip


def positions(found):
    few, many = (f"{context:,}" for context in found["contexts"])
    rows = [
        [f"{row['first']:,} to {row['end'] - 1:,}", *(f"{loss:.3f}" for loss in row["losses"]),
         f"{row['worth']:.3f} ± {row['error']:.3f}" if row["first"] else "–"]
        for row in found["rows"]
    ]  # fmt: skip
    rows.append(["all", *(f"{loss:.3f}" for loss in found["losses"]), ""])
    head = ["place in the block", f"trained on {few}, in pieces", f"trained on {many}, in pieces of {few}",
            f"trained on {many}, whole", "gain from the earlier text"]  # fmt: skip
    return table(head, rows)


def shares(found):
    rows = [
        [f"**{part}**" if part == "all" else part, *(milliseconds(parts[part]) for parts in found.values())]
        for part in found["nano"]
    ]  # fmt: skip
    return table(["milliseconds", *found], rows)


def generation(found):
    rows = [
        [report.name_of(case), name, f"{case['batch'] * case['tokens'] / r.seconds:.0f}", f"{r.ratio:.2f}"]
        for case, results in races(found, "generation") for name, r in results.items()
    ]  # fmt: skip
    return table(["", "", "tokens/s", "time / time of PyTorch eager"], rows)


def ops(found):
    rows = [
        [case["name"], milliseconds(results[PEER].seconds), milliseconds(results[OURS].seconds),
         f"**{results[OURS].ratio:.2f}**"]
        for case, results in races(found, "op")
    ]  # fmt: skip
    return table(["op, forward and backward", "PyTorch eager, ms", "numpy_attention, ms", "ratio"], rows)


def speed(found):
    rows = []
    for case, results in races(found, "step"):
        peer, floor, compiled = (results[name] for name in (PEER, FLOOR, COMPILED))
        ours = [(SIZES[case["size"]], results[OURS])]
        if case["size"] == "nano":
            ours.append(("nano with two processes, `mpiexec -n 2`", results[RANKS]))
            ours += [("nano on free-threaded Python", results[name]) for name in (FREE_THREADED,) if name in results]
        rows += [
            [name, f"{r.ratio:.2f}", f"{r.ratio / compiled.ratio:.2f}", f"{r.seconds / floor.seconds:.2f}",
             f"{r.peak / peer.peak:.2f}{' each' if r is results[RANKS] else ''}"]
            for name, r in ours
        ]  # fmt: skip
    head = ["forward, backward and AdamW of a GPT", "time / time of PyTorch", "time / time of torch.compile",
            "time / time of its matrix products alone", "peak memory / peak memory of PyTorch"]  # fmt: skip
    return table(head, rows)


def more_speed(found):
    long = [(case, results) for case, results in races(found, "attention") if case["T"] >= 1024]
    ratios = [results[OURS].ratio for _, results in long]
    jax = [results["JAX jit"].seconds / results[OURS].seconds for _, results in long if "JAX jit" in results]
    longest = next(results for case, results in long if case["T"] == 16384 and case["causal"])
    with_cache = next(results for case, results in races(found, "generation") if case["cache"] and case["batch"] == 1)
    case, one_text = races(found, "long")[-1]
    peak, all_weights = one_text[OURS].peak / 1e9, bytes_of_all_weights(case["size"]) / 1e9
    memory = f"{peak:.1f} GB; storing all attention weights would take {all_weights:.0f} GB"
    imports = races(found, "import")[0][1]
    tiled = f"{min(ratios):.2f} to {max(ratios):.2f} of PyTorch's fused attention"
    rows = [
        ["`tiled_attention`, forward and backward, T from 1,024 to 16,384", tiled],
        ["`tiled_attention` compared with JAX, T up to 4,096", f"{min(jax):.1f} to {max(jax):.1f} times as fast"],
        ["memory of `tiled_attention` without the inputs, T = 16,384, 8 heads of 64",
         f"{longest[OURS].extra / 1e9:.2f} GB, proportional to T"],
        ["a training step on one text of 16,384 tokens, 6 layers of 384",
         f"{one_text[OURS].ratio:.2f} of PyTorch's time; {memory}"],
        ["generation with a KV cache, 6 layers of 384, one text",
         f"{1 / with_cache[OURS].ratio:.2f} times as many tokens per second as PyTorch eager"],
        ["`import numpy_attention`, without the time of NumPy", f"{1e3 * imports['beyond numpy'].seconds:.0f} ms"],
    ]  # fmt: skip
    return table(["other results of the same benchmark", "this book"], rows)


def as_printed(found, kind):
    """The table that the benchmark itself prints."""
    rows = [row for case, results in races(found, kind) for row in report.rows(case, results)]
    return table(report.head(kind), rows)


def pretrained(found):
    return [f"Measured on this machine: {found['machine']}.", "", *as_printed(found, "pretrained")]


def busy(found):
    """A row for each work and library: the time on a quiet machine, and on a busy one as a multiple of it."""
    by_work = {}
    for case, results in races(found, "busy"):
        for name, r in results.items():
            by_work.setdefault((report.name_of(case["work"]), name), []).append(r.seconds)
    rows = [
        [work, name, milliseconds(quiet), *(f"{seconds / quiet:.2f}" for seconds in others)]
        for (work, name), (quiet, *others) in by_work.items()
    ]  # fmt: skip
    head = ["", "", "ms, quiet machine", "with one other process, times", "with two, times"]
    return [f"Measured on this machine: {found['machine']}.", "", *table(head, rows)]


def read():
    """The results of all runs."""
    return [
        json.loads(path.read_text(encoding="utf-8")) for path in (RESULTS, OF_PRETRAINED, BUSY, PROFILE, BY_POSITION)
    ]  # fmt: skip


def blocks(found, of_pretrained, on_busy, profile, by_position):
    """(file, name, text between the markers), for every table."""
    on_page = page_tables(found) | {
        "pretrained": pretrained(of_pretrained), "busy": busy(on_busy), "shares": shares(profile),
        "positions": positions(by_position),
    }  # fmt: skip
    for path, tables in ((PAGE, on_page), (README, {"speed": readme_sentence(found)})):
        for name, lines in tables.items():
            yield path, name, "\n".join(lines)


def write(found, *others):
    """Put the tables between their markers, and draw the picture."""
    for path, name, content in blocks(found, *others):
        path.write_text(with_block(path.read_text(encoding="utf-8"), name, content), encoding="utf-8")
    report.plot(PICTURE, races(found, "attention"))


if __name__ == "__main__":
    write(*read())
