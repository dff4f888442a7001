"""Two properties more than every entry of the catalogue has to have, beside those of `gradcheck.properties`.

A gradient check cannot see a forward that is wrong together with its backward, nor one use that disturbs another.
"""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from numpy_attention.gradcheck.check import random_cotangent
from numpy_attention.gradcheck.entry import Case, Entry
from numpy_attention.gradcheck.problem import Arrays, is_float
from numpy_attention.gradcheck.properties import PROPERTIES, Property, same
from numpy_attention.gradcheck.spec import Sizes

from .plain import PLAIN, multi_head_attention


def forward_is_the_formula(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """The output is that of the formula written plainly, where we have it (see `plain`)."""
    case = entry.case(seed, np.float64, sizes)
    plain, options = _plain(case)
    if plain is None:
        return
    y, _ = case.op(**case.inputs, **copy.deepcopy(case.options))
    expected = plain(**case.inputs, **options)
    assert y.shape == expected.shape, f"{entry.name}: the forward gives {y.shape}, the formula {expected.shape}"
    wrong = ~(np.abs(y - expected) <= 1e-10 * max(1.0, float(np.max(np.abs(expected), initial=0.0))))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise AssertionError(f"{entry.name}: the forward gives {y[at]:.9g} at {at}, the formula {expected[at]:.9g}")


def two_uses_do_not_disturb_each_other(entry: Entry, seed: int, sizes: Sizes | None = None) -> None:
    """Another forward between a forward and its backward changes nothing."""
    case = entry.case(seed, np.float64, sizes)
    alone, between = _gradients(case, seed, disturbed=False), _gradients(case, seed, disturbed=True)
    assert same(alone, between), (f"{entry.name}: the gradients change when it is used once more before its backward; "
                                  "is something kept outside the cache?")


def _plain(case: Case) -> tuple[Callable[..., Any] | None, Arrays]:
    options = copy.deepcopy(case.options)
    if case.entry.covers == "MultiHeadAttention":
        layer = case.layer
        ordinary = layer.num_kv_heads == layer.num_heads and layer.rotary_base is None and not options
        return (multi_head_attention if ordinary else None), {"num_heads": layer.num_heads}
    if options.get("dropout"):
        return None, options
    return PLAIN.get(case.entry.covers), options


def _gradients(case: Case, seed: int, disturbed: bool) -> Any:
    """Forward and backward of the very layer or op, not of a copy."""
    forward: Callable[..., Any] = case.op
    backward: Callable[..., Any] = case.op_backward
    inputs = dict(case.inputs)
    if case.layer is not None:
        inputs = {name: value for name, value in inputs.items() if name not in case.layer.parameters()}
        is_model = hasattr(case.layer, "loss")
        forward = case.layer.loss if is_model else case.layer.forward
        backward = (lambda dy, cache: case.layer.backward(cache)) if is_model else case.layer.backward
    y, cache = forward(**inputs, **copy.deepcopy(case.options))
    if disturbed:
        other = {name: value + 0.5 if is_float(value) else value for name, value in inputs.items()}
        another = {name: np.random.default_rng(99) if isinstance(value, np.random.Generator) else value
                   for name, value in case.options.items()}
        forward(**other, **another)
    return backward(random_cotangent((np.asarray(y),), seed)[0], cache)


_KILLERS = ("gradients_agree_with_differences", "nothing_is_changed", "dtype_is_kept")
KILLERS: tuple[Property, ...] = (
    PROPERTIES[_KILLERS[0]], forward_is_the_formula, two_uses_do_not_disturb_each_other,
    *(PROPERTIES[name] for name in _KILLERS[1:]),
)  # the gradients first: they say most


def failure(property_: Property, entry: Entry, seed: int, sizes: Sizes | None = None) -> str:
    """What a property says against an entry; empty when it holds. A crash is a failure too."""
    try:
        with np.errstate(all="ignore"):
            property_(entry, seed, sizes)
    except AssertionError as error:
        return str(error)
    except Exception as error:  # a mutant may break in any way
        return f"{entry.name}: {type(error).__name__}: {error}"
    return ""
