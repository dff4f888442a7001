"""From NumPy to another library and back: `gradcheck_vjp` for a function of that library's arrays."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy_attention.gradcheck.check import gradcheck_vjp
from numpy_attention.gradcheck.problems.options import name_of
from numpy_attention.gradcheck.problems.problem import Arrays, Inputs, is_meant, name_inputs
from numpy_attention.gradcheck.problems.trees import kind_of, leaves, tree_map
from numpy_attention.gradcheck.report import GradientError, Report

Pull = Callable[[Callable[[Arrays], Any], Arrays, Any], Mapping[str, Any]]


def check_there(
    f: Any, inputs: Inputs, here: Callable[[Any], Any], there: Callable[[str, Any], Any], pull: Pull,
    around: Callable[[], Any], no_gradient: Sequence[str], options: Mapping[str, Any],
) -> Report:
    """`gradcheck_vjp` of f, called on arrays of its library.

    `there` makes them and `here` brings them back, `pull(g, arrays, dy)` differentiates g at the arrays, and all of it
    happens inside `around()`.
    """
    named, in_order = name_inputs(f, inputs)
    without = names_of(no_gradient)
    with around():
        hosts = {name: tree_map(lambda _, leaf: here(leaf), value) for name, value in named.items()}

    def call(given: Arrays, moved: Arrays) -> Any:
        put = {
            argument: tree_map(lambda name, leaf: moved[name] if name in moved else there(name, leaf), value, argument)
            if argument in named else value
            for argument, value in given.items()
        }
        positional = [put.pop(name) for name in in_order]
        return f(*positional, **put)

    @functools.wraps(f)
    def run(*args: Any, **more: Any) -> Any:
        with around():
            return tree_map(lambda _, leaf: here(leaf), call(dict(zip(in_order, args)) | more, {}))

    def vjp(dy: Any, *args: Any, **more: Any) -> dict[str, Any]:
        given = dict(zip(in_order, args)) | more
        asked = {
            name: leaf for argument in named for name, leaf in leaves(given[argument], argument)
            if kind_of(leaf) and not any(is_meant(name, one) for one in without)
        }
        with around():
            moved = {name: there(name, leaf) for name, leaf in asked.items()}
            try:
                found = pull(lambda arrays: call(given, arrays), moved, dy)
            except (ArithmeticError, IndexError, RuntimeError, TypeError, ValueError) as error:
                said = f"the backward raised {type(error).__name__}: {error}"
                raise GradientError(f"gradcheck {name_of(f)}: {said}") from error
            grads = {name: here(grad) for name, grad in found.items()}
        return {argument: tree_map(lambda name, _: grads.get(name), given[argument], argument) for argument in named}

    ready: Inputs = hosts if isinstance(inputs, Mapping) else tuple(hosts.values())
    return gradcheck_vjp(run, vjp, ready, no_gradient=without, **options)


def with_dy(y: Any, dy: Any) -> list[tuple[Any, Any]]:
    """The outputs that have a cotangent, with it."""
    return [(one, d) for (_, one), (_, d) in zip(leaves(y), leaves(dy), strict=True) if d is not None]


def names_of(no_gradient: Sequence[str]) -> list[str]:
    """The names as a list; a single one may come alone."""
    return [no_gradient] if isinstance(no_gradient, str) else list(no_gradient)


def leaves_of(named: Arrays) -> list[tuple[str, Any]]:
    """Every leaf of all arguments with its name."""
    return [pair for argument, value in named.items() for pair in leaves(value, argument)]
