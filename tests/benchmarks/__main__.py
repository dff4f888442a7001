"""Speed on this machine, compared with other libraries: `python -m tests.benchmarks` in a copy of the repository."""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy_attention.app.plots.style import ENDINGS
from numpy_attention.backend import NAMES, BackendError, get_backend
from numpy_attention.errors import InputError
from numpy_attention.pretrained.fetch import located
from tests.benchmarks import pretrained, race, report, work

DEFAULT = ("import", "steps", "ops", "attention", "generation")
# "long" takes half an hour; "pretrained" and "busy" need a model: python -m numpy_attention fetch smollm2
KINDS = (*DEFAULT, "long", "pretrained", "busy")
OTHERS = (0, 1, 2)  # other processes that are busy during the measurement
STEP_CONTENDERS = [
    "PyTorch eager", "numpy_attention", "products alone", "torch.compile", "JAX jit", "autograd",
    "numpy_attention, ranks",
]
ATTENTION_CONTENDERS = ["PyTorch eager", "numpy_attention", "plain NumPy", "torch softmax(QK)V", "JAX jit"]
PRETRAINED_CONTENDERS = ["transformers", "numpy_attention"]
LOWER_LIMITS = {"prompt": ["products alone"], "generation": ["reading alone"], "LoRA step": ["products alone"]}
LENGTHS = (256, 512, 1024, 2048, 4096, 8192, 16384)
GENERATIONS = (
    {"cache": True, "prompt": 16, "batch": 1},
    {"cache": False, "prompt": 16, "batch": 1},
    {"cache": True, "prompt": 1024, "batch": 8},
)
LONGEST_DENSE = 4096  # for a larger T, arrays of T x T take gigabytes and minutes


def main(argv: Sequence[str] | None = None) -> int:
    """Measure; return the exit code: 0, or 2 for invalid arguments."""
    try:
        return run(_parser().parse_args(argv))
    except (InputError, BackendError) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks", allow_abbrev=False,
        description="Ratios to PyTorch eager, if it is installed. Each contender runs in a separate process, and the "
        "contenders take turns. Before the timing, all must compute the same numbers. PyTorch, JAX and autograd take "
        "part if they are installed: pip install '.[bench]'. NUMPY_ATTENTION_FREE_THREADED may name a free-threaded "
        "Python with NumPy and threadpoolctl; our steps then also run on this Python.",
    )
    kinds = f"some of {', '.join(KINDS)} (default: all without the last three)"
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=kinds)
    parser.add_argument("--sizes", default="nano,micro,small,gpt2", help="sizes of the GPT (default: %(default)s)")
    parser.add_argument("--only", default="", help="only ops whose name contains this text")
    parser.add_argument("--longest", type=int, default=LENGTHS[-1], help="largest T (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each contender (default: %(default)s)")
    parser.add_argument("--threads", type=int, default=2, help="threads of each contender (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="a first impression in less than a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all results to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="plot attention's time and memory against T")
    parser.add_argument("--backend", default="numpy", choices=NAMES, help="cupy: measure only our steps, on a GPU")
    return parser


def run(arguments: argparse.Namespace) -> int:
    """Run the benchmark; print a table for each kind of work, line by line."""
    backend = get_backend(arguments.backend)  # raises an error before any measurement if something is missing
    plan = _plan(arguments)
    _check_files(arguments)
    about = report.machine(arguments.threads)
    print(f"{about}\n{backend.describe()}" if backend.name != "numpy" else about)
    races: list[Any] = []
    missing: dict[str, str] = {}
    for kind, groups in plan:
        if kind == "import":
            races.append(({"kind": "import"}, race.imports(max(arguments.rounds, 7), arguments.quick)))
            report.print_imports(races[-1][1])
            if arguments.json:
                report.write_json(arguments.json, about, races, missing)
            continue
        print(f"\n{report.TITLES[groups[0][0][0]['kind']]}\n")
        report.line(report.head(groups[0][0][0]["kind"]))
        report.line(["---"] * len(report.head(groups[0][0][0]["kind"])))
        for cases, names in groups:
            with race.processes(names, arguments.threads) as contenders:
                for case in cases:
                    results, absent = race.race(case, contenders, arguments.rounds, 0.1 if arguments.quick else 0.3)
                    missing |= {f"{name}, {report.name_of(case)}": why for name, why in absent.items()}
                    races.append((case, results))
                    for cells in report.rows(case, results):
                        report.line(cells)
                    if arguments.json:
                        report.write_json(arguments.json, about, races, missing)
    if missing:
        print("\nNot measured:")
        for name, why in missing.items():
            print(f"  {name}: {why}")
    if arguments.plot:
        report.plot(arguments.plot, races)
        print(f"\n{arguments.plot}")
    return 0


def _check_files(arguments: argparse.Namespace) -> None:
    """Raise an error before the measurement if a result file cannot be written at the end."""
    if arguments.plot is not None and arguments.plot.suffix.lower() not in ENDINGS:
        raise InputError(f"--plot must end in .png, .svg or .pdf, got {arguments.plot}")
    for option, path in (("--json", arguments.json), ("--plot", arguments.plot)):
        try:
            if path is not None:
                open(path, "ab").close()
        except OSError as error:
            raise InputError(f"{option}: cannot write {path}: {error.strerror or error}") from None


def _plan(arguments: argparse.Namespace) -> list[tuple[str, list[tuple[list[dict[str, Any]], list[str]]]]]:
    """The kinds of work. Each has groups of cases; the cases of a group run in the same processes."""
    kinds = arguments.kinds or list(DEFAULT)
    sizes = arguments.sizes.split(",")
    for given, known, what in ((kinds, KINDS, "KIND"), (sizes, list(work.SIZES), "--sizes")):
        for name in given:
            if name not in known:
                raise InputError(f"{what}: there is no {name!r}; there are {', '.join(known)}")
    if arguments.rounds < 1 or arguments.threads < 1:
        raise InputError("--rounds and --threads must be at least 1")
    quick = arguments.quick
    if arguments.backend != "numpy":
        if arguments.kinds not in ([], ["steps"]):
            raise InputError(f"--backend {arguments.backend} measures only steps; leave the KIND out")
        cases = [[{"kind": "step", "size": size, "backend": arguments.backend}] for size in sizes]
        return [("steps", [(case, ["numpy_attention"]) for case in cases])]
    sizes = [size for size in sizes if size in ("nano", "micro")] if quick else sizes
    steppers = STEP_CONTENDERS[:3] if quick else STEP_CONTENDERS
    if python := os.environ.get(race.ITS_PYTHON):
        if shutil.which(python) is None:
            raise InputError(f"{race.ITS_PYTHON}: there is no program {python!r}")
        steppers = [*steppers, race.FREE_THREADED]
    only = arguments.only or ("layer_norm" if quick else "")
    longest = min(arguments.longest, 1024) if quick else arguments.longest
    plans: dict[str, Any] = {"import": []}
    plans["steps"] = [
        ([{"kind": "step", "size": size}], [name for name in steppers if (name, size) not in TOO_SLOW])
        for size in sizes
    ]  # fmt: skip
    ops = [name for name in work.OPS if only in name]
    plans["ops"] = [([{"kind": "op", "name": name} for name in ops], STEP_CONTENDERS[:2])]
    plans["attention"] = [
        (
            [{"kind": "attention", "T": T, "causal": causal}],
            ATTENTION_CONTENDERS[: 2 if quick or T > LONGEST_DENSE else None],
        )
        for T in LENGTHS
        for causal in ((True,) if quick else (True, False))
        if T <= longest and not (quick and T == 512)
    ]
    tokens = 32 if quick else 128
    generated = [{"kind": "generation", "tokens": tokens, **how} for how in GENERATIONS[: 1 if quick else None]]
    plans["generation"] = [(generated, STEP_CONTENDERS[:2])]
    # a new process for each case, so that its memory is the memory of one case
    long = [size for size, (_, T, *_) in work.LONG.items() if T <= longest]
    plans["long"] = [([{"kind": "long", "size": size}], STEP_CONTENDERS[:2]) for size in long]
    plans["pretrained"] = [
        ([case], PRETRAINED_CONTENDERS + LOWER_LIMITS.get(case["name"], [])) for case in pretrained.cases(quick)
    ]
    busy = [({"kind": "step", "size": size}, STEP_CONTENDERS[:2]) for size in sizes]
    busy += [(case, PRETRAINED_CONTENDERS) for case in pretrained.cases(quick)[:3]]
    plans["busy"] = [
        ([{"kind": "busy", "work": case, "others": others} for others in OTHERS], names) for case, names in busy
    ]  # fmt: skip
    if {"pretrained", "busy"} & {*kinds}:
        located(pretrained.MODEL)  # raises an error before any measurement if the model is missing
    if not ops:
        raise InputError(f"--only: no op has {arguments.only!r} in its name; there are {', '.join(work.OPS)}")
    if not plans["attention"]:
        raise InputError(f"--longest must be at least {LENGTHS[0]}, got {arguments.longest}")
    if "long" in kinds and not long:
        raise InputError(f"--longest: the shortest long text has {next(iter(work.LONG))}")
    return [(kind, plans[kind]) for kind in KINDS if kind in kinds]


TOO_SLOW = {("autograd", "small"), ("autograd", "gpt2")}  # minutes for a few steps


if __name__ == "__main__":
    raise SystemExit(main())
