"""The attack: mistakes of many kinds in third-party functions, thousands of right gradients, and other checkers.

    python -m tests.benchmarks.attack_checkers               everything, about 20 minutes; results go to attack.json
    python -m tests.benchmarks.attack_checkers errors        one part: errors, right or peers
    python -m tests.benchmarks.attack_checkers --draws 5     draws of each function at each scale (default: 34)
    python -m tests.benchmarks.attack_checkers --quick       one draw, no other checkers, nothing stored: two minutes
    python -m tests.benchmarks.attack_checkers --fresh       first delete the results of our checker only
    python -m tests.benchmarks.attack_checkers --write       write the tables into docs/checkers.md

Results that are in attack.json are not computed again, so a stopped run continues. `peers` needs
`pip install torch jax autograd scipy`.
"""

import argparse
import functools
import importlib.metadata
import json
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import numpy_attention as na
from numpy_attention.files import atomic_write
from tests.benchmarks.attack_page import PAGE, tables
from tests.benchmarks.attacks import Trial, trials
from tests.benchmarks.attacks.shared import right_checks, shared
from tests.benchmarks.compare_checkers import CHECKERS, verdict
from tests.benchmarks.third_party import THIRD_PARTY, Arrays, ThirdParty
from tests.generated import with_block

RESULTS = Path(__file__).with_name("attack.json")
DRAWS = 34
Found = dict[str, Any]


class Counted:
    """A function that counts its calls."""

    def __init__(self, f: Callable[..., Any]) -> None:
        functools.update_wrapper(self, f)
        self.f, self.calls = f, 0

    def __call__(self, *arrays: Any) -> Any:
        self.calls += 1
        return self.f(*arrays)


def run_check(f: Callable[..., Any], backward: Any, inputs: Arrays, op: bool = False, **more: Any) -> Found:
    """What our checker returns: right, wrong, unresolved or crash; its text, the arguments it names, seconds, calls."""
    check = na.gradcheck.gradcheck if op else na.gradcheck.gradcheck_vjp
    counted, started = Counted(f), time.process_time()
    arrays, names = tuple(x.copy() for x in inputs), None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            state, said = "right", str(check(counted, backward, arrays, **more))
        except na.gradcheck.GradientError as error:
            state, said = "wrong", str(error)
            if error.report:
                names = [one.name for one in error.report.wrong]
                state = "wrong" if names else "unresolved"
        except Exception as error:  # a bare traceback is a result too
            state, said = "crash", f"{type(error).__name__}: {error}"
    seconds = time.process_time() - started
    return {"state": state, "said": said, "names": names, "seconds": round(seconds, 4), "calls": counted.calls}


def grade_of_diagnosis(trial: Trial, found: Found) -> str:
    """Whether the diagnosis is right, absent or misleading, as attack.json names the three grades."""
    said = found["said"]
    lines = [line for line in said.splitlines() if line.startswith("likely mistake: ")]
    sentence = lines[0].removeprefix("likely mistake: ") if lines else said if not found["names"] else ""
    causes = "; ".join(cause for cause in sentence.split("; ") if "no simple rule" not in cause)
    if not causes:
        return "absent"
    return "right" if re.search(trial.diagnosis, causes) else "misleading"


def check_trial(trial: Trial) -> Found:
    """The result of our checker on a planted mistake."""
    found = run_check(trial.f, trial.wrong, trial.inputs, trial.op)
    innocent = set(found["names"] or ()) - set(trial.argument.split(",")) if trial.argument else set()
    grade = grade_of_diagnosis(trial, found)
    return {
        "kind": trial.kind, "state": found["state"], "words": grade, "innocent": sorted(innocent),
        "seconds": found["seconds"], "calls": found["calls"],
        "said": found["said"] if found["state"] in ("right", "crash") or innocent else "",
    }


def check_third_party(function: ThirdParty, scale: str, seed: int) -> Found:
    """The result of our checker on a right gradient."""
    inputs = function.draw(np.random.default_rng(seed), scale)
    return run_check(function.f, function.vjp, inputs, seed=seed, rtol=function.tolerance)


def attack_errors(results: Found, save: Callable[[], None]) -> None:
    """Check every planted mistake once."""
    for trial in trials():
        if trial.name not in results["errors"]:
            results["errors"][trial.name] = found = check_trial(trial)
            if found["state"] in ("right", "crash") or found["innocent"]:
                print(f"{trial.kind}, {trial.name}: {found['state']} {found['innocent']}", found["said"], "", sep="\n")
            save()


def attack_right(results: Found, save: Callable[[], None], draws: int) -> None:
    """Check every right gradient at each of its scales, with this number of draws."""
    for name, function in THIRD_PARTY.items():
        for scale in function.scales:
            nothing: Found = {"draws": 0, "alarms": [], "seconds": 0.0, "calls": 0}
            done = results["right"].setdefault(f"{name}, {scale}", nothing)
            for seed in range(done["draws"], draws):
                found = check_third_party(function, scale, seed)
                done["draws"] = seed + 1
                done["seconds"] = round(done["seconds"] + found["seconds"], 4)
                done["calls"] += found["calls"]
                if found["state"] != "right":
                    done["alarms"].append({"seed": seed, "state": found["state"], "said": found["said"]})
                    print(f"{name}, {scale}, seed {seed}: {found['state']}\n{found['said']}\n", flush=True)
            save()


def attack_peers(results: Found, save: Callable[[], None]) -> None:
    """Run all checkers on the shared mistakes and on right gradients."""
    for case in shared():
        row = results["shared"].setdefault(case.name, {})
        for name, checker in CHECKERS.items():
            if name not in row:
                fine, said, first = verdict(checker, case.f, case.right, case.inputs)
                state, second = "", 0.0  # after a false alarm the wrong gradient need not be tried
                if fine == "passed":
                    state, said, second = verdict(checker, case.wrong_f or case.f, case.wrong, case.inputs)
                seconds = [round(first, 3), round(second, 3)]
                row[name] = {"right": fine, "wrong": state, "seconds": seconds, "said": said[:300]}
                save()
        print(case.name, {name: (one["right"], one["wrong"]) for name, one in row.items()}, flush=True)
    for label, case in right_checks():
        row = results["shared right"].setdefault(label, {})
        for name, checker in CHECKERS.items():
            if name not in row:
                fine, said, lasted = verdict(checker, case.f, case.right, case.inputs)
                row[name] = {"right": fine, "seconds": round(lasted, 3), "said": said[:300]}
                save()
        print(label, {name: one["right"] for name, one in row.items()}, flush=True)


def as_lines(results: Found) -> str:
    """JSON with one line for each check."""
    parts = []
    for part, found in results.items():
        lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
        parts.append(f" {json.dumps(part)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def stored() -> Found:
    """The results of earlier runs."""
    return json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}


def main() -> None:
    """Run the named parts, or all; print the tables, or write them into the page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("parts", nargs="*", help="errors, right or peers (default: all)")
    parser.add_argument("--draws", type=int, default=DRAWS)
    for flag in ("--quick", "--fresh", "--write"):
        parser.add_argument(flag, action="store_true")
    given = parser.parse_args()
    parts = given.parts or (["errors", "right"] if given.quick else ["errors", "right", "peers"])
    results = {} if given.quick else stored()
    results = {part: results.get(part, {}) for part in ("versions", "errors", "right", "shared", "shared right")}
    if given.fresh:
        results |= {"errors": {}, "right": {}}
        for row in [*results["shared"].values(), *results["shared right"].values()]:
            row.pop("numpy_attention", None)
    if "peers" in parts:
        packages = ("numpy", "torch", "jax", "autograd", "scipy")
        results["versions"] = {name: importlib.metadata.version(name) for name in packages}
    last = [time.monotonic()]

    def save(now: bool = False) -> None:
        if not given.quick and (now or time.monotonic() - last[0] > 5):
            last[0] = time.monotonic()
            with atomic_write(RESULTS) as path:
                path.write_text(as_lines(results))

    if "errors" in parts:
        attack_errors(results, save)
    if "right" in parts:
        attack_right(results, save, 1 if given.quick else given.draws)
    if "peers" in parts:
        attack_peers(results, save)
    save(now=True)
    found = tables(results)
    if given.write:
        text = PAGE.read_text("utf-8")
        for name, block in found.items():
            text = with_block(text, name, block)
        PAGE.write_text(text)
    else:
        print("\n\n".join(found.values()))


if __name__ == "__main__":
    main()
