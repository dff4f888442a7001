"""Reference cases: inputs, dy, outputs and every gradient, for a backward in any language.

    case = reference_case("scaled_dot_product_attention: mask", seed=3, sizes={"T_q": 16})
    case.inputs, case.options, case.dy            what your program gets
    case.y, case.grads                            what it must compute
    case.compare({"dq": dq, "dk": dk})            a report, or GradientError with the likely mistake

A case is an entry of the catalogue with random numbers; its results are computed in float64 from exactly these numbers.
`vector_files` writes a case to a file.
"""

import copy
import inspect
import operator
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np

from numpy_attention.backend import to_host
from numpy_attention.errors import InputError
from numpy_attention.gradcheck.given import DTYPES, Rival, compare_given, results_at
from numpy_attention.gradcheck.problem import Arrays, Problem, forward_of, is_float, parameters_of, random_cotangent
from numpy_attention.gradcheck.report import Report
from numpy_attention.shapes import Sizes
from numpy_attention.tutor.catalogue import MISTAKES
from numpy_attention.tutor.checks import select_entries
from numpy_attention.tutor.entry import Entry
from numpy_attention.tutor.mistake import Mistake

__all__ = ["ReferenceCase", "reference_case"]


class ReferenceCase:
    """A case of an entry. The parameters of a layer are inputs; dropout draws the options random.0, random.1 and so on.

    Floats are stored in float32, of a case in float64 in float64; numbers of 16 bits are exact in float32.
    """

    def __init__(self, entry: Entry, seed: int, sizes: Sizes, dtype: str) -> None:
        self.entry, self.seed, self.sizes, self.dtype = entry, seed, sizes, dtype
        self.problem = problem_of(entry, seed, sizes, dtype)
        self.layer = getattr(self.problem, "layer", None)
        options, drawn = dict(self.problem.options), list[np.ndarray]()
        for name, value in options.items():
            if isinstance(value, np.random.Generator):
                options[name] = _Recorder(value, drawn)  # a program in another language cannot draw the same numbers
        y = np.asarray(self.problem.call(dict(self.problem.inputs), options)[0])
        cotangent = _rounded(random_cotangent((y,), seed)[0], dtype)
        results = results_at(self.problem, self.problem.inputs, (cotangent,))
        options |= {f"random.{i}": one for i, one in enumerate(drawn)}

        def stored(values: Mapping[str, Any]) -> dict[str, Any]:
            kind = np.float64 if dtype == "float64" else np.float32
            return {name: value.astype(kind) if is_float(value) else value for name, value in values.items()}

        self.inputs = stored(self.problem.inputs)
        self.options = stored({name: one for name, one in options.items() if not isinstance(one, np.random.Generator)})
        self.dy, self.results = stored({"dy": cotangent})["dy"], stored(results)
        self.y, self.grads = self.results["y"], {name[1:]: one for name, one in self.results.items() if name != "y"}

    @property
    def arrays(self) -> Arrays:
        """All arrays by name: inputs, options, dy, y, and the gradients dq, dk."""
        of_options = {name: value for name, value in self.options.items() if isinstance(value, np.ndarray)}
        return {**self.inputs, **of_options, "dy": self.dy, **self.results}

    def about(self) -> dict[str, Any]:
        """A description for JSON."""
        f, arrays = self.entry.op or type(self.layer), self.arrays
        known = parameters_of(self.entry.op or forward_of(self.layer)).items()
        options = {name: one.default for name, one in known if one.default not in (one.empty, None)} | self.options
        axes = {one.name: {"axes": one.axes} for one in self.entry.parsed.arguments}
        return {
            "name": self.entry.name, "formula": formula(f), "layer": getattr(self.entry.build, "args", [""])[0],
            "inputs": self.entry.spec, "sizes": self.sizes, "seed": self.seed, "dtype": self.dtype,
            "version": import_module("numpy_attention").__version__,
            "options": {name: value for name, value in options.items() if name not in arrays},
            "arrays": {
                name: {"dtype": str(one.dtype), "shape": one.shape, **axes.get(name, {})}
                for name, one in arrays.items()
            },
        }

    def compare(self, given: Mapping[str, Any], dtype: str | Mapping[str, str] = "") -> Report:
        """Compare results of another program: arrays of NumPy, PyTorch, JAX or CuPy, called y, dq, dk.

        An array is judged by the round-off of its dtype, or of `dtype`. In a case of 16 bits, float32 means 16 bits.

        Raises: GradientError with a report if an array is wrong; InputError for an array that cannot be compared.
        """
        arrays, dtypes, sixteen = Arrays(), dict[str, str](), {"float32": self.dtype} if "16" in self.dtype else {}
        for name, one in given.items():
            found = (dtype.get(name) if isinstance(dtype, Mapping) else dtype) or getattr(one, "dtype", "float64")
            found = str(found).removeprefix("torch.")
            dtypes[name] = sixteen.get(found, found)
            if name not in self.results or dtypes[name] not in DTYPES:
                expected = f"the results are {', '.join(self.results)}, in {', '.join(DTYPES)}"
                raise InputError(f"{self.entry.name}: {expected}, got {name} in {dtypes[name]}")
            try:
                on_host = one.detach().cpu().double().numpy() if hasattr(one, "detach") else to_host(one)
                arrays[name] = np.asarray(on_host, np.float64)
            except (TypeError, ValueError) as error:
                raise InputError(f"{self.entry.name}: {name} must be an array of floats: {error}") from None
        if not arrays:
            raise InputError(f"{self.entry.name}: no result is given; the results are {', '.join(self.results)}")
        try:
            return compare_given(self.problem, (self.dy.astype(np.float64),), arrays, dtypes, self._known_mistakes())
        except ValueError as error:
            raise InputError(f"{self.entry.name}: {error}") from None

    def _known_mistakes(self) -> Iterator[Rival]:
        """The results of the known mistakes of this op or layer."""

        def results(mistake: Mistake) -> Arrays:
            problem = problem_of(mistake.spoil(self.entry), self.seed, self.sizes, self.dtype)
            return results_at(problem, problem.inputs, (self.dy.astype(np.float64),))

        for one in MISTAKES.values():
            if one.covers == self.entry.covers:
                yield f"the known mistake {one.name}: {one.wrong}", partial(results, one)


def reference_case(
    name: str, *, seed: int = 0, sizes: Mapping[str, Any] | None = None, dtype: str = "float32"
) -> ReferenceCase:
    """The case of an entry of the catalogue, or of the first entry of an op, layer or model.

    `sizes` sets sizes of the spec, the others are drawn; `dtype` is float32, float64, float16 or bfloat16.

    Raises: InputError for a name, a size or a dtype that does not exist.
    """
    entry = select_entries([name])[0]
    if dtype not in DTYPES:
        raise InputError(f"dtype must be one of {', '.join(DTYPES)}, got {dtype}")
    try:
        seed, given = operator.index(seed), {size: _whole(size, value) for size, value in (sizes or {}).items()}
    except TypeError:
        raise InputError(f"seed and sizes must be whole numbers, got seed={seed}, sizes={sizes}") from None
    if seed < 0:
        raise InputError(f"seed must be at least 0, got {seed}")
    free = [size for size in entry.parsed.size_names if size not in entry.fixed]
    for size, value in given.items():
        if size not in free and value != entry.fixed.get(size):
            always = "".join(f"; {one} is always {number}" for one, number in entry.fixed.items())
            raise InputError(f"{entry.name} has no size {size} to choose; its sizes are {', '.join(free)}{always}")
        if np.min(value, initial=1) < 1:
            raise InputError(f"{entry.name}: {size} must be at least 1, got {value}")
    least = {size: max(2, entry.at_least.get(size, 2)) for size in free}  # axes of length 1 hide mistakes
    fixed: dict[str, Any] = {**({"...": (3, 2)} if "..." in free else {}), **entry.fixed, **given}
    chosen = replace(entry, fixed=fixed, at_least=least).sizes(np.random.default_rng(seed))
    try:
        return ReferenceCase(entry, seed, chosen, dtype)
    except (ValueError, TypeError) as error:
        raise InputError(f"{entry.name} with the sizes {chosen}: {error}") from None


def _whole(size: str, value: Any) -> Any:
    """A size as an int; for the leading axes a tuple."""
    if size != "...":
        return operator.index(value)
    return tuple(map(operator.index, value if isinstance(value, (tuple, list)) else (value,)))


def formula(f: Any) -> str:
    """The formula in a docstring, else its first line."""
    texts = [inspect.getdoc(one) or "" for one in (f, getattr(f, "forward", f), getattr(f, "loss", f))]
    found = (re.search(r"Formula: (.+?)(?:\n\n|$)", text, re.DOTALL) for text in texts)
    return next((" ".join(one[1].split()) for one in found if one), texts[0].partition("\n")[0])


def problem_of(entry: Entry, seed: int, sizes: Sizes, dtype: str) -> Problem:
    """The problem of an entry in float64, with numbers that the dtype holds exactly."""
    problem = entry.case(seed, np.float64, sizes).problem()
    inputs, options = (
        {name: _rounded(x, dtype) if is_float(x) else x for name, x in values.items()}
        for values in (problem.inputs, problem.options)
    )
    return problem.with_changes(name=entry.name, inputs=inputs, options=options)


def _rounded(x: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bfloat16":  # the first 16 bits of a float32, rounded to an even last bit
        bits = x.astype(np.float32).view(np.uint32)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).view(np.float32).astype(np.float64)
    return x.astype(dtype).astype(np.float64)


class _Recorder(np.random.Generator):
    """A generator that keeps the numbers that it draws."""

    def __init__(self, generator: np.random.Generator, drawn: list[np.ndarray]) -> None:
        super().__init__(copy.deepcopy(generator.bit_generator))
        self.drawn = drawn

    def random(self, *given: Any, **how: Any) -> Any:
        self.drawn.append(np.asarray(super().random(*given, **how)))
        return self.drawn[-1]
