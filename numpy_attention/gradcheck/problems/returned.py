"""What a backward returned, matched with the arguments that can have a gradient.

    dx, dw                                  in argument order; the gradient of a single argument may come alone
    {"x": dx, "w": dw}                      by argument name
    dx, {"w": dw, "layers": [{"b": db}]}    an argument that is a tree has a gradient of its form

None stands for an argument, or a branch of a tree, that has no gradient. What cannot be matched is refused in one line
that says where.
"""

from typing import Any

import numpy as np

from numpy_attention.gradcheck.problems.trees import Arrays, children, kind_of, names_in
from numpy_attention.gradcheck.report import GradientError

Gradients = dict[str, np.ndarray | None]


class TreeError(ValueError):
    """A gradient has not the form of its argument; the message says where."""


def name_gradients(name: str, returned: Any, arguments: Arrays) -> Gradients:
    """What a backward returned, by the names of the arrays."""
    found: Gradients = {}
    for key, grad in by_argument(name, returned, arguments).items():
        found |= gradients_of(arguments[key], grad, key)
    return found


def by_argument(name: str, returned: Any, arguments: Arrays) -> dict[str, Any]:
    """The gradient of each argument, or a refusal.

    Formula: the first of these readings that fits: by name, in order without the Nones, one for each input, a tree

    Raises: GradientError
    """
    floats = [key for key, value in arguments.items() if names_in(value, key)]
    meanings: list[dict[str, Any]] = []
    trouble = ""
    if isinstance(returned, dict):
        unknown = [key for key in returned if key not in arguments]
        if unknown:
            known = ", ".join(floats)
            trouble = f"backward returned a gradient called {unknown[0]!r}; gradients go by the arguments: {known}"
        else:
            meanings.append(returned)
    else:
        grads = tuple(returned) if type(returned) in (tuple, list) else (returned,)
        given = tuple(grad for grad in grads if grad is not None)
        if len(grads) == len(floats) or len(given) == len(floats):
            meanings.append(dict(zip(floats, grads if len(grads) == len(floats) else given, strict=True)))
        elif len(grads) == len(arguments):
            meanings.append(dict(zip(arguments, grads, strict=True)))
        else:
            trouble = (
                f"backward returned {len(given)} gradients for {len(floats)} arrays "
                f"of floats ({', '.join(floats) or 'none'}); return one each, in argument order"
            )
    if len(floats) == 1 and children(arguments[floats[0]]) is not None:
        meanings.append({floats[0]: returned})
    for meaning in meanings:
        try:
            for key, grad in meaning.items():
                gradients_of(arguments[key], grad, key)
            return meaning
        except TreeError as error:
            trouble = trouble or str(error)
    raise GradientError(f"gradcheck {name}: {trouble}")


def gradients_of(value: Any, grad: Any, name: str) -> Gradients:
    """The gradient of a tree, which must have its form, taken apart by the names of its arrays.

    None may stand for a whole branch. Keys of a dict may be missing; whoever asks will miss them.

    Raises: TreeError
    """
    mine = children(value)
    if mine is None:
        return _gradients_of_leaf(value, grad, name)
    if grad is None:
        return dict.fromkeys(names_in(value, name))
    theirs = children(grad)
    if theirs is None:
        raise TreeError(f"d{name} is {_kind(grad)}, where {name} is {_kind(value)}")
    in_order = isinstance(value, (tuple, list))
    if in_order and type(grad) in (tuple, list):
        if len(theirs) != len(mine):
            raise TreeError(f"d{name} has {len(theirs)} entries, {name} has {len(mine)}")
        theirs = dict(zip(mine, theirs.values(), strict=True))
    for step in theirs:
        if step not in mine:
            raise TreeError(f"d{name} holds d{name}{step}, but {name} holds only {', '.join(name + s for s in mine)}")
    found: Gradients = {}
    for step, one in mine.items():
        if step in theirs:
            found |= gradients_of(one, theirs[step], name + step) if names_in(one, name) else {}
    return found


def _gradients_of_leaf(leaf: Any, grad: Any, name: str) -> Gradients:
    kind = kind_of(leaf)
    if not kind:  # nothing can be asked of an integer's gradient
        return {}
    if grad is None:
        return dict.fromkeys(names_in(leaf, name))
    if children(grad) is not None:
        raise TreeError(f"d{name} is {_kind(grad)}, where {name} is {_kind(leaf)}")
    if kind == "c":
        return {f"{name}.real": np.real(grad), f"{name}.imag": np.imag(grad)}
    return {name: grad if hasattr(grad, "dtype") else np.asarray(grad)}


def _kind(value: Any) -> str:
    """What something is, for a message."""
    if children(value) is not None:
        return f"a {type(value).__name__} of {len(children(value) or ())}"
    return f"an array of shape {np.shape(value)}" if hasattr(value, "dtype") else f"a {type(value).__name__}"
