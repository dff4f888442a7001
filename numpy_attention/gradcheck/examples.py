"""Examples of a spec: arrays that fit together, with the sizes and the seed that make them again.

    >>> example = draw_example("x: B T d, w: d", seed=3)
    >>> sorted(example), example["x"].shape[-1] == example["w"].shape[0]
    (['w', 'x'], True)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.spec import Sizes, Spec, draw_inputs, draw_sizes, parse

FEW = 400  # numbers altogether, where sizes can be so small


class DrawnInputs(dict[str, Any]):
    """The drawn arrays by argument name; `sizes`, `seed` and `special` made them, and are what a failure prints."""

    def __init__(self, spec: Spec, sizes: Sizes, seed: int, arrays: Mapping[str, Any], special: bool = False) -> None:
        super().__init__(arrays)
        self.spec, self.sizes, self.seed, self.special = spec, sizes, seed, special

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}: {_shape(value)}" for name, value in self.items())
        chosen = ", ".join(f"{name}={size}" for name, size in self.sizes.items())
        return f"<sizes {chosen}; seed {self.seed}{'; special values' * self.special}; {shapes}>"


def example_sizes(
    spec: Spec | str,
    seed: int,
    *,
    fixed: Mapping[str, int | tuple[int, ...]] | None = None,
    at_least: Mapping[str, int] | None = None,
    largest: int = 5,
) -> Sizes:
    """The sizes of the example of this seed: the first of twelve draws with few numbers, or else the smallest."""
    spec = parse(spec) if isinstance(spec, str) else spec
    rng = np.random.default_rng([seed, 17])
    draws = [draw_sizes(spec, rng, fixed=fixed, at_least=at_least, largest=largest) for _ in range(12)]
    counts = [sum(int(np.prod(shape)) for shape in spec.shapes(sizes).values()) for sizes in draws]
    few = [sizes for sizes, count in zip(draws, counts) if count <= FEW]
    return few[0] if few else draws[int(np.argmin(counts))]


def draw_example(
    spec: Spec | str,
    seed: int,
    *,
    fixed: Mapping[str, int | tuple[int, ...]] | None = None,
    at_least: Mapping[str, int] | None = None,
    largest: int = 5,
    dtype: Any = np.float64,
    special: bool = True,
) -> DrawnInputs:
    """The example of this seed. Three in four hold special values; an optional argument is None in one of three."""
    spec = parse(spec) if isinstance(spec, str) else spec
    sizes = example_sizes(spec, seed, fixed=fixed, at_least=at_least, largest=largest)
    special = special and seed % 4 != 0
    arrays: dict[str, Any] = dict(draw_inputs(spec, sizes, seed, dtype, special=special))
    rng = np.random.default_rng([seed, 19])
    for argument in spec.arguments:
        if argument.optional and rng.random() < 1 / 3:
            arrays[argument.name] = None
    return DrawnInputs(spec, sizes, seed, arrays, special)


def _shape(value: Any) -> str:
    return "None" if value is None else f"{value.dtype} {value.shape}"
