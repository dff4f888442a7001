"""Chapter 13, appendix. The arrays of a layer: found by name, loaded, frozen, moved to a GPU

An array of a layer is an attribute, or an attribute of a layer inside it. So the names are found by walking through the
attributes.

A frozen array is used in forward and backward, but training does not change it: `parameters` leaves it out. A backward
need not compute its gradient (Chapter 37 saves time in this way). If a backward returns the gradient anyway, the
gradient is not used.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any, Self

import numpy as np

from numpy_attention.backend import NumPyBackend
from numpy_attention.errors import dtype_error, mismatches, require_array, several


class Arrays:
    """The part of a layer that knows its arrays."""

    frozen: Collection[str] = ()  # names of its arrays that do not learn

    def parameters(self) -> dict[str, np.ndarray]:
        """All arrays that learn, by dotted name. They are not copies: `p[...] = value` changes the layer."""
        # each array with its dotted name, the layer that owns it, and its name in this layer
        return {dotted: getattr(owner, name) for dotted, owner, name in self.arrays() if name not in owner.frozen}

    def num_parameters(self) -> int:
        """The number of parameters; an array that is used in two places is counted once."""
        return sum(p.size for p in {id(p): p for p in self.parameters().values()}.values())

    def arrays(self, prefix: str = "") -> Iterator[tuple[str, Any, str]]:
        """Every array in this layer: its dotted name, the layer that owns it, and its name in that layer."""
        for name, value in vars(self).items():
            if value is None:  # a part that is off
                continue
            if isinstance(value, Arrays):
                yield from value.arrays(f"{prefix}{name}.")
            elif isinstance(value, list):
                for i, layer in enumerate(value):
                    yield from layer.arrays(f"{prefix}{name}.{i}.")
            elif hasattr(value, "shape") and not isinstance(value, np.generic):  # a NumPy scalar is a setting
                yield prefix + name, self, name

    def frozen_arrays(self) -> list[str]:
        """The dotted names of the arrays that do not learn; `parameters` leaves them out."""
        return [dotted for dotted, owner, name in self.arrays() if name in owner.frozen]

    def freeze(self) -> None:
        """Freeze all arrays in this layer: `parameters` is then empty, until a layer with new arrays is added."""
        for _, owner, name in list(self.arrays()):
            owner.frozen = {*owner.frozen, name}

    def unfreeze(self) -> None:
        """Let all arrays in this layer learn again, except the arrays that a class itself declares frozen."""
        for _, owner, _ in list(self.arrays()):
            vars(owner).pop("frozen", None)  # the `frozen` of the class remains

    def load_parameters(self, new: dict[str, np.ndarray]) -> None:
        """Copy new values into the parameters; names, shapes and dtypes must all agree.

        Raises: ValueError that lists the first differences; TypeError when a value is not an array. The parameters are
        unchanged after an error.
        """
        op, own = type(self).__name__, self.parameters()
        if not isinstance(new, dict):
            raise dtype_error(op, "new", "a dict of arrays", type(new).__name__)
        for name, array in new.items():
            require_array(op, f"new[{name!r}]", array)
        if wrong := mismatches(own, new, "layer"):
            raise ValueError(f"{op}: the parameters do not fit: {several(wrong)}")
        for name, p in own.items():
            p[...] = np.asarray(new[name], like=p)

    def to(self, backend: NumPyBackend) -> Self:
        """Copy every array to the device of the backend, and return the layer: `model.to(gpu)`.

        Create the optimizer afterwards, because an optimizer keeps references to the arrays.
        """
        self.replace_parameters(lambda _, p: backend.asarray(p))
        return self

    def replace_parameters(self, replace: Callable[[str, np.ndarray], np.ndarray]) -> None:
        """Replace every array p, frozen or not, by `replace(name, p)`, for example by an array of another dtype."""
        for dotted, owner, name in list(self.arrays()):
            setattr(owner, name, replace(dotted, getattr(owner, name)))
