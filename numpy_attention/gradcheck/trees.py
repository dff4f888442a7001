"""Trees: inputs and outputs may be dicts, lists, tuples, NamedTuples and dataclasses of arrays.

    {"w": w, "layers": [{"b": b}]}, argument params         params.w, params.layers[0].b

The checker changes only named arrays of floats. So this module takes a tree apart, and puts it together again, in the
same containers, for every call of the function:

    an array of floats           unchanged
    a float, np.float64(...)     an array without axes; the function gets a float or a NumPy scalar again
    a complex array z            two arrays, z.real and z.imag
    other values                 unchanged: integers, masks, None, strings, functions; a random generator is copied

For complex numbers we use the gradient of the real number L = Re sum(conj(dy) y):

    dz = dL/dRe z + i dL/dIm z        so for an analytic y = f(z):  dz = conj(f'(z)) dy

as in PyTorch. L grows in the direction of dz. JAX and autograd take the conjugate of dy and return the conjugate of dz.

The gradients that a backward returns are matched with the arguments:

    dx, dw                                  in argument order; a single gradient needs no tuple
    {"x": dx, "w": dw}                      by argument name
    dx, {"w": dw, "layers": [{"b": db}]}    the gradient of a tree is a tree of the same form

None means that an argument, or a branch of a tree, has no gradient. A gradient that matches no array raises an error;
the message is one line and names the place in the tree.
"""

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.report import GradientError

Arrays = dict[str, Any]

Gradients = dict[str, np.ndarray | None]


def children(value: Any) -> dict[str, Any] | None:
    """The parts of a container, each with the suffix of its name; None for a leaf."""
    if type(value) is np.ndarray:
        return None
    if isinstance(value, dict):
        return {_step(key): one for key, one in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return {f".{field}": one for field, one in zip(value._fields, value, strict=True)}
    if isinstance(value, (tuple, list)):
        return {f"[{i}]": one for i, one in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f".{field.name}": getattr(value, field.name) for field in dataclasses.fields(value)}
    return None


def _step(key: Any) -> str:
    return f".{key}" if isinstance(key, str) and re.fullmatch(r"\w+(\.\w+)*", key) else f"[{key!r}]"


def with_children(value: Any, parts: list[Any]) -> Any:
    """A container of the same kind with other parts."""
    if isinstance(value, dict):
        new = copy.copy(value)
        new.update(zip(value, parts, strict=True))
        return new
    if isinstance(value, tuple) and hasattr(value, "_make"):
        return value._make(parts)
    if isinstance(value, (tuple, list)):
        return type(value)(parts)
    new = copy.copy(value)  # a dataclass, also a frozen one; __post_init__ does not run again
    for field, part in zip(dataclasses.fields(value), parts, strict=True):
        object.__setattr__(new, field.name, part)
    return new


def tree_map(change: Callable[[str, Any], Any], value: Any, name: str = "") -> Any:
    """The same containers, with every leaf replaced by `change(name, leaf)`.

    >>> tree_map(lambda name, leaf: name, {"w": 1, "layers": [2, (3, 4)]}, "params")
    {'w': 'params.w', 'layers': ['params.layers[0]', ('params.layers[1][0]', 'params.layers[1][1]')]}
    """
    inner = children(value)
    if inner is None:
        return change(name, value)
    return with_children(value, [tree_map(change, one, name + step) for step, one in inner.items()])


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every leaf with its name, in order."""
    inner = children(value)
    if inner is None:
        yield name, value
    else:
        for step, one in inner.items():
            yield from leaves(one, name + step)


def kind_of(leaf: Any) -> str:
    """ "f" for a float or an array of floats, "c" for complex numbers, "" for other values."""
    if isinstance(leaf, (float, complex)) and not isinstance(leaf, np.generic):
        return "f" if isinstance(leaf, float) else "c"
    kind = getattr(getattr(leaf, "dtype", None), "kind", "")
    return kind if kind in ("f", "c") else ""


def has_complex(*trees: Any) -> bool:
    """Whether one of the trees holds complex numbers."""
    return any(kind_of(leaf) == "c" for tree in trees for _, leaf in leaves(tree))


def taken_apart(value: Any, name: str) -> Arrays:
    """The leaves of a tree by name; numbers become arrays, which can be changed in place."""
    found: Arrays = {}
    for one, leaf in leaves(value, name):
        if kind_of(leaf) == "c":
            found |= {f"{one}.real": np.array(np.real(leaf)), f"{one}.imag": np.array(np.imag(leaf))}
        else:
            found[one] = np.array(leaf) if kind_of(leaf) and is_scalar(leaf) else leaf
    return found


def put_together(trees: Arrays, arrays: Mapping[str, Any]) -> Arrays:
    """The trees with their leaves replaced by other arrays."""

    def of_leaf(name: str, leaf: Any) -> Any:
        kind = kind_of(leaf)
        value = in_complex_plane(arrays[f"{name}.real"], arrays[f"{name}.imag"]) if kind == "c" else arrays[name]
        if kind and is_scalar(leaf):
            value = np.asarray(value)[()]
            # A complex step of a float stays a NumPy scalar, since NumPy can compare complex numbers.
            return value.item() if type(leaf) in (float, complex) and value.dtype.kind == kind else value
        return own(value)

    return {name: tree_map(of_leaf, value, name) for name, value in trees.items()}


def own(leaf: Any) -> Any:
    """A copy of a random generator, so that every call draws the same dropout mask; any other value unchanged."""
    return copy.deepcopy(leaf) if isinstance(leaf, (np.random.Generator, np.random.RandomState)) else leaf


def is_scalar(leaf: Any) -> bool:
    """Whether a leaf is a number, not an array."""
    return isinstance(leaf, (float, complex, np.generic))


def in_complex_plane(real: Any, imag: Any) -> np.ndarray:
    """real + i imag, set part by part: for an infinite imag, `real + 1j * imag` is NaN in the real part."""
    z = np.empty(np.shape(real), np.result_type(real, np.complex64))
    z.real, z.imag = real, imag
    return z


def outputs_of(y: Any, split: bool = True) -> tuple[np.ndarray, ...]:
    """Copies of the arrays of floats in y; a function may return a view of an array that the checker moves later.

    With `split`, a complex array becomes two arrays.
    """
    found: list[np.ndarray] = []
    for _, leaf in leaves(y, "y"):
        if kind_of(leaf) == "c" and split:
            found += [np.array(np.real(leaf)), np.array(np.imag(leaf))]
        elif kind_of(leaf):
            found.append(np.array(leaf))
    return tuple(found)


def cotangent_of(y: Any, dy: tuple[np.ndarray, ...], split: bool = True) -> Any:
    """dy in the containers of y; None for leaves of y without floats."""
    rest = iter(dy)

    def one(name: str, leaf: Any) -> Any:
        if kind_of(leaf) == "c" and split:
            return in_complex_plane(next(rest), next(rest))
        return next(rest) if kind_of(leaf) else None

    return tree_map(one, y)


def match_gradients(name: str, returned: Any, arguments: Arrays) -> tuple[dict[str, Any], Gradients]:
    """Match the gradients that a backward returned with arguments; return them by argument, and by array.

    Formula: the first interpretation that fits: by name, in order without the Nones, one for each input, a tree

    Raises: GradientError
    """
    floats = [key for key, value in arguments.items() if any(kind_of(leaf) for _, leaf in leaves(value))]
    meanings: list[dict[str, Any]] = []
    trouble = ""
    if isinstance(returned, dict):
        unknown = [key for key in returned if key not in arguments]
        if unknown:
            rule = f"the names must be names of arguments: {', '.join(floats)}"
            trouble = f"backward returned a gradient called {unknown[0]!r}; {rule}"
        else:
            meanings.append(returned)
    else:
        grads = tuple(returned) if type(returned) in (tuple, list) else (returned,)
        given = tuple(grad for grad in grads if grad is not None)
        pairs = ((floats, grads), (floats, given), ([*arguments], grads))
        meanings += [dict(zip(names, ones)) for names, ones in pairs if len(names) == len(ones)][:1]
        if not meanings:
            arrays = f"{len(floats)} arrays of floats ({', '.join(floats) or 'none'})"
            trouble = f"backward returned {len(given)} gradients for {arrays}; return one for each, in argument order"
    if len(floats) == 1 and children(arguments[floats[0]]) is not None:
        meanings.append({floats[0]: returned})
    for meaning in meanings:
        try:
            found: Gradients = {}
            for key, grad in meaning.items():
                found |= gradients_of(arguments[key], grad, key)
            return meaning, found
        except ValueError as error:
            trouble = trouble or str(error)
    raise GradientError(f"gradcheck {name}: {trouble}")


def gradients_of(value: Any, grad: Any, name: str) -> Gradients:
    """The gradient of a tree, which must have the form of the tree, by the names of the arrays; None if it is missing.

    Raises: ValueError
    """
    arrays, given = dict(leaves(value, name)), dict(leaves(grad, name))
    for one, part in given.items():
        if one not in arrays and part is not None:  # None may stand for a whole branch
            raise ValueError(f"backward returned d{one}, but {name} holds only {', '.join(arrays)}")
    found: Gradients = {}
    for one, leaf in arrays.items():
        part = given.get(one)
        if kind_of(leaf) == "c":
            found[f"{one}.real"] = None if part is None else np.real(part)
            found[f"{one}.imag"] = None if part is None else np.imag(part)
        elif kind_of(leaf):
            found[one] = part if part is None or hasattr(part, "dtype") else np.asarray(part)
    return found
