"""Hypothesis strategies for property tests: arrays for a spec; axes with the same name have equal lengths.

    from hypothesis import given
    from numpy_attention import gradcheck
    from numpy_attention.gradcheck.strategies import inputs

    @given(inputs("x: ... d, gamma: d, ids: int<V> B T"))
    def test_my_norm(drawn):
        gradcheck(my_norm, my_norm_backward, {"x": drawn["x"], "gamma": drawn["gamma"]})

`spec.py` defines the language of the specs; three of four examples have its special values.
Hypothesis shrinks a failing example to the smallest sizes and the smallest seed that still fail, without special values
if possible. The message contains the sizes, the seed, and whether there are special values.
"""

import math
from collections.abc import Mapping
from itertools import islice
from typing import Any

import numpy as np

try:
    from hypothesis import strategies as st
except ImportError as missing:
    raise ImportError("numpy_attention.gradcheck.strategies needs Hypothesis: pip install hypothesis") from missing

from numpy_attention.gradcheck.spec import DrawnInputs, Size, Sizes, Spec, draw_inputs, parse


@st.composite
def sizes_of(
    draw: st.DrawFn, spec: Spec | str, *, fixed: Mapping[str, Size] | None = None,
    at_least: Mapping[str, int] | None = None, largest: int = 5, most: int = 400,
) -> Sizes:
    """Sizes for a spec, mostly all different; they shrink until all arrays together have at most `most` elements."""
    spec = parse(spec) if isinstance(spec, str) else spec
    names = [name for name in spec.size_names if name not in (fixed or {})]
    least = dict.fromkeys(names, 1) | dict(spec.minima) | dict(at_least or {})
    leading = draw(st.integers(0, 3)) if "..." in names else 0
    count = len(names) - ("..." in names) + leading
    # Hypothesis shrinks this to False first, which allows equal sizes and sizes of 1.
    different = draw(st.sampled_from([False, True, True, True]))
    numbers = st.integers(2, max(largest, count + 1)) if different else st.integers(1, largest)
    chosen = iter(draw(st.lists(numbers, min_size=count, max_size=count, unique=different)))
    sizes: dict[str, Any] = dict(fixed or {})
    for name in names:
        sizes[name] = tuple(islice(chosen, leading)) if name == "..." else max(next(chosen), least[name])

    def surplus(name: str) -> int:
        return math.prod(sizes[name]) - 1 if name == "..." else sizes[name] - least[name]

    while sum(map(math.prod, spec.shapes(sizes).values())) > most and any(map(surplus, names)):
        name = max(names, key=surplus)
        sizes[name] = sizes[name][1:] if name == "..." else sizes[name] - 1
    return sizes


@st.composite
def inputs(
    draw: st.DrawFn, spec: Spec | str, *, fixed: Mapping[str, Size] | None = None,
    at_least: Mapping[str, int] | None = None, largest: int = 5, most: int = 400, dtype: Any = np.float64,
    special: bool = True,
) -> DrawnInputs:
    """Arrays for a spec, by argument name; an optional argument (`b?: d`) is sometimes None.

    `fixed` sets sizes, `at_least` is a lower bound, and `largest` an upper bound, which is exceeded only if there are
    too many sizes to be different. Use `special=False` for a function that is not defined at zeros, ties and the like.
    """
    spec = parse(spec) if isinstance(spec, str) else spec
    sizes = draw(sizes_of(spec, fixed=fixed, at_least=at_least, largest=largest, most=most))
    special = special and draw(st.sampled_from([False, True, True, True]))
    seed = draw(st.integers(0, 2**16 - 1))
    absent = [argument.name for argument in spec.arguments if argument.optional and draw(st.booleans())]
    arrays = draw_inputs(spec, sizes, seed, dtype, special=special) | dict.fromkeys(absent)
    return DrawnInputs(spec, sizes, seed, arrays, special)
