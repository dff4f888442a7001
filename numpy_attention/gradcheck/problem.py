"""What is checked, in one form: a function of named arrays, and the gradients it claims.

    an op            y, cache = op(x, w)                dx, dw = op_backward(dy, cache)
    a function       y = f(x, w)                        dx, dw = vjp(dy, x, w)
    a layer          y, cache = layer.forward(x)        dx, gradients by name = layer.backward(dy, cache)
    a model          loss, cache = model.loss(ids)      gradients by name = model.backward(cache)

A layer becomes an op of its inputs and all its parameters: a copy of it is bound to the arrays at hand, which the
differences may then move, and the layer itself stays as it is. Arrays that it has besides, frozen ones say, are inputs
without a gradient: they must go along into float64, or to a GPU.
"""

import copy
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import Evaluate, Outputs
from numpy_attention.gradcheck.report import GradientError

Arrays = dict[str, Any]
Gradients = dict[str, np.ndarray | None]
Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any]


@dataclass
class Problem:
    """`run(arrays)` gives outputs and a cache, `pull_back(dy, cache)` the gradients by name.

    `bind(arrays)` gives a call without arguments that always reads the arrays as they are now.
    """

    name: str
    inputs: Arrays
    run: Callable[[Arrays], tuple[Outputs, Any]]
    pull_back: Callable[[Outputs, Any], Gradients]
    bind: Callable[[Arrays], Evaluate]
    options: Mapping[str, Any]
    with_options: "Callable[[Mapping[str, Any]], Problem]"
    parameters: frozenset[str] = frozenset()

    @property
    def differentiable(self) -> list[str]:
        """The names of the arrays of floats."""
        return [name for name, value in self.inputs.items() if is_float(value)]

    def gradients(self, arrays: Arrays, dy: Outputs) -> Gradients:
        """What the backward says at these arrays."""
        return self.pull_back(dy, self.run(arrays)[1])


def is_float(value: object) -> bool:
    """Whether this input is an array of floats, which alone are differentiated."""
    return not isinstance(value, np.generic) and getattr(getattr(value, "dtype", None), "kind", "") == "f"


def in_float64(arrays: Mapping[str, Any]) -> Arrays:
    """Copies of the arrays of floats in float64, made to be moved in place; all else as it is."""
    return {
        name: np.array(value, dtype=np.float64, order="C") if is_float(value) else value
        for name, value in arrays.items()
    }


def outputs_of(y: Any) -> Outputs:
    """The outputs as a tuple of copies: an op may well return a view of what we are about to move."""
    many = y if isinstance(y, (tuple, list)) else (y,)
    return tuple(np.array(one) for one in many)


def problem_of_op(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, options: Mapping[str, Any]
) -> Problem:
    """An op and its backward, in the contract `y, cache = op(...)`, `op_backward(dy, cache)`."""
    name = _name(op)
    named, by_position = name_inputs(op, inputs)

    def call(arrays: Arrays) -> tuple[Any, Any]:
        fresh = _fresh(options, arrays)
        answer = op(*arrays.values(), **fresh) if by_position else op(**arrays, **fresh)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"gradcheck: {name} must return (y, cache), got {type(answer).__name__}; "
                "is it a plain function? Then use gradcheck_vjp(f, vjp, inputs)"
            )
        return answer

    return _problem(
        name, named, call, op_backward, options, lambda other: problem_of_op(op, op_backward, inputs, other)
    )


def problem_of_function(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, options: Mapping[str, Any]
) -> Problem:
    """A plain function `y = f(...)` with its vector-Jacobian product `gradients = vjp(dy, ...)`."""
    named, _ = name_inputs(f, inputs)

    def call(arrays: Arrays) -> tuple[Any, Any]:
        given, fresh = [arrays[name] for name in named], _fresh(options, arrays)
        return f(*given, **fresh), (given, fresh)

    return _problem(
        _name(f), named, call, lambda dy, cache: vjp(dy, *cache[0], **cache[1]), options,
        lambda other: problem_of_function(f, vjp, inputs, other),
    )


def _problem(
    name: str, named: Arrays, call: Callable[[Arrays], tuple[Any, Any]], backward: Callable[..., Any],
    options: Mapping[str, Any], with_options: Callable[[Mapping[str, Any]], Problem],
) -> Problem:
    """`y, cache = call(arrays)`, with `backward(dy, cache)`, where y is one array or several."""

    def run(arrays: Arrays) -> tuple[Outputs, Any]:
        y, cache = call(arrays)
        return outputs_of(y), (isinstance(y, (tuple, list)), cache)

    def pull_back(dy: Outputs, cache: Any) -> Gradients:
        many, inner = cache
        return name_gradients(name, backward(dy if many else dy[0], inner), named)

    return Problem(name, named, run, pull_back, lambda arrays: lambda: run(arrays)[0], options, with_options)


def problem_of_layer(layer: Any, inputs: Inputs, options: Mapping[str, Any]) -> Problem:
    """A layer or a model: a function of its inputs and of every one of its parameters."""
    named, _ = name_inputs(_forward_of(layer), inputs)
    arrays_held = arrays_of(layer)
    clash = sorted(set(arrays_held) & set(named))
    if clash:
        raise ValueError(f"gradcheck: {type(layer).__name__} has an input and a parameter called {clash[0]}")
    op, op_backward = layer_as_op(layer, tuple(named))

    def run(arrays: Arrays) -> tuple[Outputs, Any]:
        y, cache = op(**arrays, **_fresh(options, arrays))
        return outputs_of(y), cache

    def pull_back(dy: Outputs, cache: Any) -> Gradients:
        grads: Gradients = op_backward(dy[0] if len(dy) == 1 else dy, cache)
        return grads

    def bind(arrays: Arrays) -> Evaluate:
        bound = with_parameters(layer, arrays)
        forward = _forward_of(bound)

        def evaluate() -> Outputs:
            return outputs_of(forward(**{name: arrays[name] for name in named}, **_fresh(options, arrays))[0])

        return evaluate

    return Problem(
        type(layer).__name__, {**named, **arrays_held}, run, pull_back, bind, options,
        lambda other: problem_of_layer(layer, inputs, other), frozenset(layer.parameters()),
    )


def layer_as_op(layer: Any, inputs: tuple[str, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A layer in the contract of an op whose arguments are its inputs and all its arrays, by name.

    The backward returns its gradients as a dict by argument name. The layer itself is not changed.
    """
    names = arrays_of(layer).keys()

    def op(**arguments: Any) -> tuple[Any, Any]:
        bound = with_parameters(layer, arguments)
        y, cache = _forward_of(bound)(**{name: value for name, value in arguments.items() if name not in names})
        return y, (bound, cache, {name: arguments[name] for name in inputs})

    def op_backward(dy: Any, cache: Any) -> Gradients:
        bound, inner, given = cache
        if hasattr(bound, "loss"):  # the loss is the end of the line: its cotangent is a factor
            return {name: grad * dy.astype(grad.dtype) for name, grad in bound.backward(inner).items()}
        *of_inputs, of_parameters = bound.backward(dy, inner)
        return {**name_gradients(type(layer).__name__, tuple(of_inputs), given), **of_parameters}

    return op, op_backward


def arrays_of(layer: Any) -> Arrays:
    """The parameters of a layer by name, and behind them what else it computes with, if it has `arrays` to tell."""
    found: Arrays = dict(layer.parameters())
    known = {id(p) for p in found.values()}
    others = layer.arrays() if hasattr(layer, "arrays") else ()
    held = {dotted: getattr(owner, name) for dotted, owner, name in others}
    return found | {name: array for name, array in held.items() if id(array) not in known}


def with_parameters(layer: Any, arrays: Mapping[str, Any]) -> Any:
    """A copy of the layer on other arrays, which it shares with the caller."""
    # deepcopy takes what its memo already holds for an object: here each array's stand-in.
    return copy.deepcopy(layer, {id(old): arrays[name] for name, old in arrays_of(layer).items()})


def _forward_of(layer: Any) -> Callable[..., Any]:
    forward: Callable[..., Any] = layer.loss if hasattr(layer, "loss") else layer.forward
    return forward


def _fresh(options: Mapping[str, Any], arrays: Mapping[str, Any]) -> Arrays:
    """The options for one call: generators copied, so that every call draws the same dropout mask, and arrays of
    floats in the dtype of the inputs, which is float64 for the differences."""
    fresh: Arrays = {}
    for name, value in options.items():
        if isinstance(value, np.random.Generator):
            fresh[name] = copy.deepcopy(value)
        elif is_float(value):
            dtype = next((array.dtype for array in arrays.values() if is_float(array)), value.dtype)
            fresh[name] = value.astype(dtype)
        else:
            fresh[name] = value
    return fresh


def name_inputs(f: Callable[..., Any], inputs: Inputs) -> tuple[Arrays, bool]:
    """The inputs by argument name, and whether they came by position."""
    try:
        names = [
            p.name for p in inspect.signature(f).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
    except (TypeError, ValueError):  # some functions written in C do not tell
        names = []
    if isinstance(inputs, Mapping):  # in argument order, for so the gradients come
        return {name: inputs[name] for name in [*names, *inputs] if name in inputs}, False
    if not isinstance(inputs, (tuple, list)):
        raise TypeError(
            f"gradcheck: inputs must be a dict by argument name or a tuple in argument order, "
            f"got {type(inputs).__name__}; for one array write (x,)"
        )
    names += [f"argument{i}" for i in range(len(names), len(inputs))]
    return dict(zip(names, inputs, strict=False)), True


def name_gradients(name: str, returned: Any, inputs: Arrays) -> Gradients:
    """Match what a backward returned with the arguments that can have a gradient.

    Gradients come in argument order; None stands for an option that is off or an array that gets none.
    """
    if isinstance(returned, dict):
        return dict(returned)
    grads = tuple(returned) if isinstance(returned, (tuple, list)) else (returned,)
    floats = [key for key, value in inputs.items() if is_float(value)]
    if len(grads) != len(floats):
        given = tuple(grad for grad in grads if grad is not None)
        if len(given) != len(floats):
            raise GradientError(
                f"gradcheck {name}: backward returned {len(given)} gradients for {len(floats)} arrays "
                f"of floats ({', '.join(floats) or 'none'}); return one each, in argument order"
            )
        grads = given
    return dict(zip(floats, grads, strict=True))


def _name(f: Any) -> str:
    return str(getattr(f, "__name__", None) or getattr(getattr(f, "func", None), "__name__", None) or type(f).__name__)
