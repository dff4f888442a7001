"""An entry of the catalogue: one op, layer or model in one variant, with the spec of its inputs.

    Entry("softmax: axis 0", "softmax", "x: A B C", ops.softmax, ops.softmax_backward, options={"axis": 0})

An entry and a seed give a case: sizes, random arrays and, for a layer, a new layer with random arrays.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np

from numpy_attention.backend import NumPyBackend, copied_to_host
from numpy_attention.gradcheck.problem import (
    Arrays,
    LayerProblem,
    OpProblem,
    Problem,
    arrays_of,
    is_float,
    layer_as_op,
)
from numpy_attention.gradcheck.spec import draw_inputs, draw_sizes
from numpy_attention.shapes import Sizes, Spec, parse
from numpy_attention.tutor.page import Row
from numpy_attention.tutor.tiny import tiny_model

Array = np.ndarray
LIMIT = 200  # maximum count of numbers in the inputs of a case, if small sizes are possible
Options = Mapping[str, Any] | Callable[[Sizes], Mapping[str, Any]]
Build = Callable[[Sizes, np.random.Generator, Any], Any]


@dataclass(frozen=True)
class Entry:
    """One line of the catalogue. A layer has `build(sizes, rng, dtype)` instead of `op` and `op_backward`.

    `covers`    the name of the checked op or class
    `options`   keyword options, or a function that computes them from the sizes
    `prepare`   a function that changes the drawn inputs: very large scores, zeros for relu, hidden keys
    `wrong`     calls that must raise an error: "w+0" extends w along axis 0, "w:float32" changes the dtype of w,
                "k.T" swaps the last two axes of k
    """

    name: str
    covers: str
    spec: str
    op: Callable[..., Any] | None = None
    op_backward: Callable[..., Any] | None = None
    build: Build | None = None
    options: Options = field(default_factory=dict)
    prepare: Callable[[Arrays, Sizes], Arrays] | None = None
    at_least: Mapping[str, int] = field(default_factory=dict)
    fixed: Mapping[str, int] = field(default_factory=dict)
    wrong: str = ""
    tolerance: float = 1e-6

    @cached_property
    def parsed(self) -> Spec:
        return parse(self.spec)

    def sizes(self, rng: np.random.Generator) -> Sizes:
        """Sizes for one draw: all different, and small enough to check every element."""
        spec = self.parsed
        draws = [draw_sizes(spec, rng, fixed=self.fixed, at_least=self.at_least) for _ in range(12)]
        weights = [sum(math.prod(shape) for shape in spec.shapes(sizes).values()) for sizes in draws]
        fitting = [sizes for sizes, weight in zip(draws, weights) if weight <= LIMIT]
        return fitting[0] if fitting else draws[int(np.argmin(weights))]

    def case(self, seed: int = 0, dtype: Any = np.float64, sizes: Sizes | None = None) -> "Case":
        """Inputs (and a layer) for a seed; without `sizes`, the seed also determines the sizes."""
        rng = np.random.default_rng(seed)
        sizes = sizes or self.sizes(rng)
        inputs: Arrays = dict(draw_inputs(self.parsed, sizes, rng, dtype))
        if self.prepare is not None:
            inputs = self.prepare(inputs, sizes)
        options = dict(self.options(sizes) if callable(self.options) else self.options)
        for name, value in options.items():
            if is_float(value):
                options[name] = value.astype(dtype)
        if self.build is None:
            return Case(self, sizes, inputs, options, None, self.op, self.op_backward)
        layer = self.build(sizes, rng, dtype)
        arrays = arrays_of(layer)
        for p in arrays.values():  # a gamma of ones or a bias of zeros would hide mistakes
            p[...] = rng.standard_normal(p.shape) / (p.shape[0] ** 0.5 if p.ndim > 1 else 1.0)
        op, op_backward = layer_as_op(layer, tuple(inputs))
        return Case(self, sizes, {**inputs, **arrays}, options, layer, op, op_backward)


@dataclass(frozen=True)
class Case:
    """One draw from an entry: `y, cache = op(**inputs, **options)` and `op_backward(dy, cache)`.

    For a layer, the inputs include all parameters and all frozen arrays, and the gradients are a dict.
    """

    entry: Entry
    sizes: Sizes
    inputs: Arrays
    options: dict[str, Any]
    layer: Any
    op: Any
    op_backward: Any

    def problem(self, backend: NumPyBackend | None = None) -> Problem:
        """The problem for the checker; with a backend, that backend computes the op and its backward."""
        if self.layer is None:
            problem: Problem = OpProblem(self.op, self.op_backward, self.inputs, self.options)
        else:
            problem = LayerProblem(self.layer, self.own_inputs, self.options)
        if backend is None or backend.name == "numpy":
            return problem
        functions = copied_to_host(self.op, self.op_backward, backend)
        return OpProblem(*functions, self.inputs, self.options, tuple(problem.without))

    @property
    def own_inputs(self) -> Arrays:
        """The inputs without the arrays of the layer."""
        arrays = arrays_of(self.layer) if self.layer is not None else {}
        return {name: value for name, value in self.inputs.items() if name not in arrays}

    def functions(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        """Forward and backward of the op, or of the layer, which uses its stored parameters."""
        layer = self.layer
        if layer is None:
            return self.op, self.op_backward
        if hasattr(layer, "loss"):
            return layer.loss, lambda dloss, cache: layer.backward(cache)
        return layer.forward, layer.backward


def entry_of(row: Row, names: Mapping[str, Any]) -> Entry:
    """The entry in a row of a page's table; its cells are Python, which may use these names and the sizes."""
    covers = row["case"].partition(":")[0]
    more: dict[str, Any] = {}
    if "layer" in row:
        more["build"] = partial(_layer, row["layer"], names)
    else:
        more |= {"op": names[covers], "op_backward": names[f"{covers}_backward"]}
    if "options" in row:
        more["options"] = lambda sizes: dict(_value(f"dict({row['options']})", names, sizes))
    if "first" in row:
        more["prepare"] = partial(_prepare, row["first"], names)
    for part in filter(None, row.get("sizes", "").split(", ")):  # "d >= 3" or "B = 2"
        name, sign, number = part.split()
        more.setdefault({">=": "at_least", "=": "fixed"}[sign], {})[name] = int(number)
    tolerance = float(row.get("tolerance", 1e-6))
    return Entry(row["case"], covers, row["inputs"], wrong=row.get("refused", ""), tolerance=tolerance, **more)


def _value(text: str, names: Mapping[str, Any], sizes: Sizes, **others: Any) -> Any:
    """The value of a cell."""
    return eval(text, {**names, **sizes, **others})


def _prepare(statement: str, names: Mapping[str, Any], inputs: Arrays, sizes: Sizes) -> Arrays:
    """Run a statement that changes the drawn inputs, such as `x *= 500`."""
    space = {**names, **sizes, **inputs}
    exec(statement, space)
    return {name: space[name] for name in inputs}


def _layer(text: str, names: Mapping[str, Any], sizes: Sizes, rng: np.random.Generator, dtype: Any) -> Any:
    """A new layer; in the cell, `tiny(GPT)` is a small model with these sizes."""
    tiny = partial(tiny_model, sizes=sizes, rng=rng, dtype=dtype)
    return _value(text, {**names, "sizes": sizes}, sizes, rng=rng, dtype=dtype, tiny=tiny)


def generator() -> np.random.Generator:
    """A generator for dropout; each new generator draws the same masks."""
    return np.random.default_rng(3)
