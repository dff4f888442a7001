"""The subjects of the attack on arrays: every public function and class, with good arguments and their results.

Most subjects come from the catalogue, which can draw inputs for every op, layer and model. `made.py` adds functions
without a gradient, and constructors of layers and models.
"""

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.catalogue.table import CATALOGUE
from numpy_attention.gradcheck.problem import is_float
from numpy_attention.gradcheck.spec import draw_sizes

MADE = "made from the result"  # instead of dy


@dataclass(frozen=True)
class Subject:
    """`use(**good)` returns all results, also gradients; an error message may contain one of `names`."""

    use: Callable[..., Any]
    good: dict[str, Any]
    kinds: dict[str, str]
    names: set[str]
    optional: set[str]  # may be None


def kind_of(value: Any, annotation: Any) -> str:
    """array, whole, number, text, flag or other."""
    said = str(annotation)
    kinds = {
        "dict": "other", "Collection": "other", "ndarray": "array", "Generator": "other", "bool": "flag",
        "float": "number", "int": "whole", "str": "text",
    }
    if isinstance(value, np.ndarray):
        return "array"
    if isinstance(value, (bool, int, float, str)):
        return {bool: "flag", int: "whole", float: "number", str: "text"}[type(value)]
    return next((kind for word, kind in kinds.items() if word in said), "other")


def subject_of(call: Callable[..., Any], use: Callable[..., Any], good: dict[str, Any], *names: str) -> Subject:
    """A subject whose missing arguments have the defaults of the signature."""
    parameters = inspect.signature(call).parameters
    given = {name: p.default for name, p in parameters.items() if p.default is not p.empty} | good
    annotations = {name: parameters[name].annotation if name in parameters else "" for name in given}
    kinds = {name: kind_of(value, annotations[name]) for name, value in given.items()}
    optional = {name for name, said in annotations.items() if given[name] is None or "None" in str(said)}
    return Subject(use, given, kinds, {*names, *parameters, *given}, optional)


def with_backward(forward: Callable[..., Any], backward: Callable[..., Any]) -> Callable[..., Any]:
    """Run the forward, and the backward for a given or drawn dy; generators restart for each call."""

    def use(dy: Any = MADE, **arguments: Any) -> Any:
        y, cache = forward(**renewed(arguments))
        return y, backward(cotangent(y) if isinstance(dy, str) and dy == MADE else dy, cache)

    return use


def cotangent(y: Any) -> Any:
    """A random array of the shape and dtype of a result."""
    if isinstance(y, np.ndarray) and y.ndim:
        return np.random.default_rng(7).standard_normal(y.shape).astype(y.dtype)
    return np.ones((), getattr(y, "dtype", np.float64))


def renewed(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with copies of generators."""
    made = (np.random.Generator, np.random.RandomState)
    return {name: copy.deepcopy(value) if isinstance(value, made) else value for name, value in arguments.items()}


def of_catalogue(name: str, seed: int, size: str = "", dtype: Any = np.float64) -> Subject:
    """The subject of an entry, with drawn arrays; one of the sizes may be 0."""
    entry, rng = CATALOGUE[name], np.random.default_rng(seed)
    sizes = entry.sizes(rng)
    if size:
        fixed = {**entry.fixed, size: 0}
        sizes = draw_sizes(entry.parsed, rng, fixed=fixed, at_least={**entry.at_least, size: 0})
    case = entry.case(seed, dtype, sizes)
    forward, backward = case.functions()
    good = {**case.own_inputs, **case.options}
    use = with_backward(forward, backward)
    is_loss = case.layer is not None and hasattr(case.layer, "loss")
    if not is_loss and not size:
        y, _ = forward(**renewed(good))
        if is_float(y):
            good["dy"] = cotangent(y)
    return subject_of(forward, use, good, entry.covers)


def sizes_of(name: str) -> list[str]:
    """The names of the sizes of an entry that are not defined by other sizes."""
    sizes = CATALOGUE[name].sizes(np.random.default_rng(0))
    return [size for size, value in sizes.items() if isinstance(value, int)]
