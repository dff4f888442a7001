"""The same mistakes through files: only the arrays that a wrong backward computed, once, for one dy.

    python -m tests.gradcheck.acceptance files

A mistake that shows only in a second call, in memory or in a shape leaves no wrong numbers in a file. A known mistake
is written from a case of its op; at the sizes of the case the wrong backward may raise an error, so the last try has
axes of equal length.
"""

import copy
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.given import compare_given, results_at
from numpy_attention.gradcheck.problem import FunctionProblem, OpProblem, Problem, random_cotangent
from numpy_attention.tutor.catalogue import CATALOGUE
from numpy_attention.tutor.mistake import Mistake
from numpy_attention.tutor.reference import ReferenceCase, problem_of, reference_case
from numpy_attention.tutor.vector_files import read_results
from tests.gradcheck.acceptance.third_party import THIRD_PARTY


def said_of(mistake: Any) -> str:
    """What the comparison says of a planted or a fresh mistake; "" if it finds nothing, or nothing can be written."""
    pair = problems_of(mistake)
    if pair is None:
        return ""
    right, wrong = pair
    y = right.run(right.inputs)[0]
    dy = tuple(np.asarray(one, np.float64) for one in random_cotangent(y, 0))
    try:
        with TemporaryDirectory() as folder:
            np.savez(Path(folder, "mine.npz"), **results_at(wrong, wrong.inputs, dy))
            given = dict(np.load(Path(folder, "mine.npz")))
        if odd := [f"{name} holds {one.dtype}" for name, one in given.items() if one.dtype.kind != "f"]:
            return odd[0]
        compare_given(right, dy, given, {name: one.dtype.name for name, one in given.items()})
    except GradientError as error:
        return error.report.diagnosis if error.report else ""
    except ValueError as error:
        return str(error)
    return ""


def problems_of(mistake: Any) -> tuple[Problem, Problem] | None:
    """The right and the wrong problem; None if there is no right backward of this function."""
    if hasattr(mistake, "right"):
        right, draw = mistake.right, mistake.right.draw(np.random.default_rng(5))
        pairs = ((right.forward, right.backward), (mistake.forward, mistake.backward))
        first, second = (OpProblem(*pair, copy.deepcopy(draw), right.options) for pair in pairs)
        return first, second
    function = THIRD_PARTY.get(mistake.name.split(":")[0].split(",")[0])
    if function is None:
        return None
    wrong = OpProblem if getattr(mistake, "op", False) else FunctionProblem
    return (
        FunctionProblem(function.f, function.vjp, copy.deepcopy(mistake.inputs), {}),
        wrong(mistake.f, mistake.wrong, copy.deepcopy(mistake.inputs), {}),
    )


def tries(mistake: Mistake, dtype: str) -> Iterator[tuple[ReferenceCase, Problem]]:
    """Cases of the op of a known mistake, each with the problem that has the mistake."""
    entries = [entry for entry in CATALOGUE.values() if entry.covers == mistake.covers]
    for seed in range(4):
        for entry in entries:
            free = [name for name in entry.parsed.size_names if name != "..." and name not in entry.fixed]
            sizes = dict.fromkeys(free, 4) if seed == 3 else {}
            try:
                case = reference_case(entry.name, seed=seed, sizes=sizes, dtype=dtype)
            except InputError:
                continue
            yield case, problem_of(mistake.spoil(entry), seed, case.sizes, dtype)


def named(mistake: Mistake, dtype: str = "float32") -> tuple[str, str]:
    """Whether a known mistake is "named", or only "caught", in a file; else "not written"; and what is said."""
    for case, problem in tries(mistake, dtype):
        kind = case.dy.dtype
        inputs = {name: x.astype(kind) if x.dtype.kind == "f" else x for name, x in problem.inputs.items()}
        try:
            with TemporaryDirectory() as folder, np.errstate(all="ignore"):
                results = results_at(problem.with_changes(inputs=inputs), inputs, (case.dy,))
                np.savez(Path(folder, "mine.npz"), **results)
                arrays, dtypes = read_results(Path(folder, "mine.npz"), case)
            case.compare(arrays, dtypes)
        except GradientError as error:
            said = error.report.diagnosis if error.report else ""
            return ("named" if mistake.name in said else "caught"), said
        except InputError as error:  # a shape, or NaN
            return "caught", str(error)
        except Exception:  # the wrong backward raises an error at these sizes
            continue
    return "not written", ""


def print_files(kinds: dict[str, list[Any]], known: list[Mistake], full: Any) -> None:
    """Print a row for each kind: how many causes are right in a file, of those that the full check names."""
    print("| kind | mistakes | right cause, full check | of these right in a file |\n|---|---|---|---|")
    for kind, some in kinds.items():
        right = [mistake for mistake in some if full(mistake)[0] == "right"]
        print(f"| {kind} | {len(some)} | {len(right)} | {sum(one.names_the_cause(said_of(one)) for one in right)} |")
    for dtype in ("float32", "float64"):
        counts = Counter(named(mistake, dtype)[0] for mistake in known)
        print(f"{len(known)} known mistakes with a backward, {dtype}: {dict(counts)}")
