"""A layer or a model as a problem: a function of its inputs and of every one of its parameters.

    a layer          y, cache = layer.forward(x)        dx, gradients by name = layer.backward(dy, cache)
    a model          loss, cache = model.loss(ids)      gradients by name = model.backward(cache)

A layer becomes an op of its inputs and all its parameters: a copy of it is bound to the arrays at hand, which the
differences may then move, and the layer itself stays as it is. Arrays that it has besides, frozen ones say, are inputs
without a gradient: they must go along into float64, or to a GPU.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy_attention.gradcheck.numbers.line import Evaluate, Outputs
from numpy_attention.gradcheck.problems.options import Options, fresh
from numpy_attention.gradcheck.problems.problem import Inputs, Problem, are_real, name_inputs, problem_of_call
from numpy_attention.gradcheck.problems.returned import by_argument
from numpy_attention.gradcheck.problems.trees import Arrays, outputs_of, put_together


def problem_of_layer(layer: Any, inputs: Inputs, options: Options, no_gradient: Sequence[str] = ()) -> Problem:
    """A layer or a model: a function of its inputs and of every one of its parameters."""
    name = type(layer).__name__
    named, _ = name_inputs(forward_of(layer), inputs)
    arrays_held = arrays_of(layer)
    clash = sorted(set(arrays_held) & set(named))
    if clash:
        raise ValueError(f"gradcheck: {name} has an input and a parameter called {clash[0]}")
    op, op_backward = layer_as_op(layer, tuple(named))
    problem = problem_of_call(
        name, {**named, **arrays_held}, lambda arguments, options: op(**arguments, **options), op_backward, options,
        lambda other: problem_of_layer(layer, inputs, other, no_gradient), no_gradient,
    )
    parameters = frozenset(layer.parameters())
    of_inputs = frozenset(problem.inputs) - frozenset(arrays_held)

    def bind(arrays: Arrays) -> Evaluate:
        forward = forward_of(with_parameters(layer, arrays))

        def evaluate() -> Outputs:
            given = {one: put_together(value, one, arrays) for one, value in named.items()}
            return outputs_of(forward(**given, **fresh(options, arrays))[0], split=are_real(arrays))

        return evaluate

    def use_again(cache: Any, arrays: Arrays) -> object:
        bound = cache[-1][0]
        given = {one: put_together(value, one, arrays) for one, value in named.items()}
        return forward_of(bound)(**given, **fresh(options, arrays))

    without = frozenset(arrays_held) - parameters | (of_inputs if hasattr(layer, "loss") else frozenset())
    problem.use_again = use_again
    problem.bind, problem.parameters, problem.without = bind, parameters, problem.without | without
    return problem


def layer_as_op(layer: Any, inputs: tuple[str, ...]) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A layer in the contract of an op whose arguments are its inputs and all its arrays, by name.

    The backward returns its gradients as a dict by argument name. The layer itself is not changed.
    """
    names = arrays_of(layer).keys()

    def op(**arguments: Any) -> tuple[Any, Any]:
        bound = with_parameters(layer, arguments)
        y, cache = forward_of(bound)(**{name: value for name, value in arguments.items() if name not in names})
        return y, (bound, cache, {name: arguments[name] for name in inputs})

    def op_backward(dy: Any, cache: Any) -> dict[str, Any]:
        bound, inner, given = cache
        if hasattr(bound, "loss"):  # the loss is the end of the line: its cotangent is a factor
            return {name: grad * dy.astype(grad.dtype) for name, grad in bound.backward(inner).items()}
        *of_inputs, of_parameters = bound.backward(dy, inner)
        return {**by_argument(type(layer).__name__, tuple(of_inputs), given), **of_parameters}

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


def forward_of(layer: Any) -> Callable[..., Any]:
    """What is differentiated: the loss of a model, the forward of a layer."""
    forward: Callable[..., Any] = layer.loss if hasattr(layer, "loss") else layer.forward
    return forward
