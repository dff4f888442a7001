"""Options: what a function takes besides its inputs. They are passed on as they are, and never differentiated.

A function may have an option that is called as one of the checker's own, `seed` or `rtol`: as a keyword that name is
the checker's, and the function's own goes in by `options={"seed": 3}`.

What is checked, in one form: a function of named arrays, and the gradients it claims.

    an op            y, cache = op(x, w)                dx, dw = op_backward(dy, cache)
    a function       y = f(x, w)                        dx, dw = vjp(dy, x, w)
    a layer, a model                                    see `layer`

Inputs and outputs may be trees of arrays (see `trees`): a problem has names for all leaves, `params.w`, and puts the
trees together again whenever the function is called.

A layer or a model as a problem: a function of its inputs and of every one of its parameters.

    a layer          y, cache = layer.forward(x)        dx, gradients by name = layer.backward(dy, cache)
    a model          loss, cache = model.loss(ids)      gradients by name = model.backward(cache)

A layer becomes an op of its inputs and all its parameters: a copy of it is bound to the arrays at hand, which the
differences may then move, and the layer itself stays as it is. Arrays that it has besides, frozen ones say, are inputs
without a gradient: they must go along into float64, or to a GPU.
"""

import copy
import inspect
import itertools
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import Evaluate, Outputs
from numpy_attention.gradcheck.trees import (
    Arrays,
    Gradients,
    by_argument,
    cotangent_of,
    kind_of,
    leaves,
    name_gradients,
    outputs_of,
    put_together,
    taken_apart,
    tree_map,
)

Options = Mapping[str, Any]

OWN = {"seed": 0, "witness": "both", "no_gradient": (), "rtol": 0.0, "atol": 0.0}  # the checker's, when not given
WITNESSES = ("both", "complex", "differences")


def checked(name: str, seed: Any, witness: Any, rtol: Any, atol: Any) -> tuple[int, float, float]:
    """The seed and the two tolerances as plain numbers, for a check of what goes by that name.

    Raises: TypeError or ValueError, in one line, for a value that the check can do nothing with.
    """

    def require(option: str, value: Any, expected: str, kind: bool, range: bool) -> None:
        if not (kind and range):
            error = ValueError if kind else TypeError
            raise error(f"gradcheck {name}: {option} must be {expected}, got {reprlib.repr(value)}")

    known = isinstance(witness, str) and witness in WITNESSES
    require("witness", witness, f"one of {', '.join(WITNESSES)}", True, known)
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    require("seed", seed, "a whole number, 0 or more", whole, whole and seed >= 0)
    for option, value in {"rtol": rtol, "atol": atol}.items():
        real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        require(option, value, "a finite number, 0 or more", real, real and 0 <= value < math.inf)
    return int(seed), float(rtol), float(atol)


def split_options(
    f: Callable[..., Any], options: Options | None, more: Options, own: Options | None = None
) -> dict[str, Any]:
    """The options of f: those given by keyword, `more`, and those in `options`. `own` are the checker's, as given.

    Raises: TypeError for an option given twice, and for one that f and the checker both may be meant to have.
    """
    name = name_of(f)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"gradcheck {name}: options must be a dict by name, got {type(options).__name__}")
    found = dict(options or {})
    for option, value in more.items():
        if option in found:
            raise TypeError(f"gradcheck {name}: the option {option} was given twice, by keyword and in options")
        found[option] = value
    for option, value in (own or {}).items():
        if value != OWN[option] and option not in found and option in parameters_of(f):
            raise TypeError(
                f"gradcheck {name}: {option}={value!r} is the checker's own, but {name} takes a {option} too; "
                f"say which {name} gets: options={{{option!r}: ...}}"
            )
    return found


def fresh(options: Options, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The options for one call: generators copied, so that every call draws the same dropout mask, and arrays of
    floats in the dtype of the inputs, which is float64 for the differences."""
    numbers = [array for array in arrays.values() if getattr(getattr(array, "dtype", None), "kind", "") in ("f", "c")]
    dtype = max(numbers, key=lambda array: array.ndim > 0).dtype if numbers else None  # of the first with axes
    found: dict[str, Any] = {}
    for name, value in with_own_generators(options).items():
        is_array = not isinstance(value, np.generic) and getattr(getattr(value, "dtype", None), "kind", "") == "f"
        found[name] = value.astype(dtype) if is_array else value
    return found


def with_own_generators(options: Options) -> dict[str, Any]:
    """The options with copies of the generators, each where it stands now."""
    return {
        name: copy.deepcopy(value) if isinstance(value, (np.random.Generator, np.random.RandomState)) else value
        for name, value in options.items()
    }


def parameters_of(f: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function by name; nothing where it does not tell, as some written in C do not."""
    if isinstance(f, np.ufunc):  # before NumPy 2.4 inspect.signature refuses them
        names = ["x"] if f.nin == 1 else [f"x{i + 1}" for i in range(f.nin)]
        return {name: inspect.Parameter(name, inspect.Parameter.POSITIONAL_ONLY) for name in names}
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return {}


def name_of(f: Any) -> str:
    """What a function is called: in messages it goes by this name."""
    return str(getattr(f, "__name__", None) or getattr(getattr(f, "func", None), "__name__", None) or type(f).__name__)


__all__ = [
    "Arrays", "Gradients", "Inputs", "Problem", "are_real", "in_float64", "is_float", "is_meant", "is_number",
    "name_inputs", "problem_of_call", "problem_of_function", "problem_of_op",
]

Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any]
Call = Callable[[Arrays, Arrays], tuple[Any, Any]]


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
    options: Options
    with_options: "Callable[[Options], Problem]"
    parameters: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()  # arrays of floats that have no gradient
    complex: bool = False  # complex numbers among the inputs or, known once it has run, among the outputs
    conjugate: Callable[[Outputs, Any], Outputs] | None = None  # of dy, for the outputs that a cache belongs to
    # Of a cache: what `run` copied the outputs from, and another forward of the very layer that made it.
    returned: Callable[[Any], list[np.ndarray]] | None = None
    use_again: Callable[[Any, Arrays], object] | None = None

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


def is_number(value: object) -> bool:
    """The same for floats and complex numbers."""
    return not isinstance(value, np.generic) and getattr(getattr(value, "dtype", None), "kind", "") in ("f", "c")


def in_float64(arrays: Mapping[str, Any]) -> Arrays:
    """Copies of the arrays of floats in float64, made to be moved in place; all else as it is."""
    return {
        name: np.array(value, np.float64, order="C") if is_float(value) or isinstance(value, np.floating) else value
        for name, value in arrays.items()
    }


def are_real(arrays: Mapping[str, Any]) -> bool:
    """Whether no complex step is being taken: the arrays of a problem are real, only this witness makes others."""
    return not any(kind_of(array) == "c" for array in arrays.values())


def problem_of_op(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, options: Options,
    no_gradient: Sequence[str] = (),
) -> Problem:
    """An op and its backward, in the contract `y, cache = op(...)`, `op_backward(dy, cache)`."""
    name = name_of(op)
    named, in_order = name_inputs(op, inputs)

    def call(arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        given = [arguments.pop(one) for one in in_order]
        answer = op(*given, **arguments, **options)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"gradcheck: {name} must return (y, cache), got {type(answer).__name__}; "
                "is it a plain function? Then use gradcheck_vjp(f, vjp, inputs)"
            )
        return answer

    return problem_of_call(
        name, named, call, op_backward, options,
        lambda other: problem_of_op(op, op_backward, inputs, other, no_gradient), no_gradient,
    )


def problem_of_function(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, options: Options, no_gradient: Sequence[str] = ()
) -> Problem:
    """A plain function `y = f(...)` with its vector-Jacobian product `gradients = vjp(dy, ...)`."""
    named, in_order = name_inputs(f, inputs)

    def call(arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        given = [arguments.pop(one) for one in in_order]
        kept = with_own_generators(options)  # what the function draws, its product must draw again
        return f(*given, **arguments, **options), (given, arguments, kept)

    def product(dy: Any, cache: Any) -> Any:
        given, arguments, options = cache
        return vjp(dy, *given, **arguments, **with_own_generators(options))

    return problem_of_call(
        name_of(f), named, call, product, options,
        lambda other: problem_of_function(f, vjp, inputs, other, no_gradient), no_gradient,
    )


def problem_of_call(
    name: str, arguments: Arrays, call: Call, backward: Callable[..., Any], options: Options,
    with_options: Callable[[Options], Problem], no_gradient: Sequence[str] = (),
) -> Problem:
    """`y, cache = call(arguments, options)`, with `backward(dy, cache)`; arguments and y are trees."""
    flat: Arrays = {}
    for argument, value in arguments.items():
        flat |= taken_apart(value, argument)
    # Whatever the function may do to its arrays, those of the caller stay as they are.
    flat = {one: leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf for one, leaf in flat.items()}
    without = _without(name, flat, no_gradient)
    _require_floats(name, arguments, flat, without)

    def run(arrays: Arrays) -> tuple[Outputs, Any]:
        given = {argument: put_together(value, argument, arrays) for argument, value in arguments.items()}
        y, cache = call(given, fresh(options, arrays))
        real = are_real(arrays)
        problem.complex |= real and any(kind_of(leaf) == "c" for _, leaf in leaves(y, "y"))
        outputs = outputs_of(y, split=real)
        if not outputs:
            kinds = ", ".join(_kind(leaf) for _, leaf in leaves(y)) or "nothing"
            raise TypeError(f"gradcheck {name}: it must return floats to be differentiated, got {kinds}")
        return outputs, (y, real, cache)

    def pull_back(dy: Outputs, cache: Any) -> Gradients:
        y, real, inner = cache
        grads = name_gradients(name, backward(cotangent_of(y, dy, split=real), inner), arguments)
        return {one: None if one in without else grad for one, grad in grads.items()}

    def conjugate(dy: Outputs, cache: Any) -> Outputs:
        return outputs_of(tree_map(lambda _, one: None if one is None else np.conj(one), cotangent_of(cache[0], dy)))

    problem = Problem(
        name, flat, run, pull_back, lambda arrays: lambda: run(arrays)[0], options, with_options, without=without,
        complex=any(kind_of(leaf) == "c" for value in arguments.values() for _, leaf in leaves(value)),
        returned=lambda cache: [leaf for _, leaf in leaves(cache[0]) if isinstance(leaf, np.ndarray)],
        conjugate=conjugate,
    )
    return problem


def _without(name: str, flat: Arrays, no_gradient: Sequence[str]) -> frozenset[str]:
    """The names of the arrays that were said to have no gradient."""
    names = [no_gradient] if isinstance(no_gradient, str) else no_gradient
    for one in names:
        if not any(is_meant(leaf, one) for leaf in flat):
            raise ValueError(f"gradcheck {name}: no_gradient names {one!r}, but the inputs are {', '.join(flat)}")
    return frozenset(leaf for leaf in flat if any(is_meant(leaf, one) for one in names))


def is_meant(leaf: str, name: str) -> bool:
    """Whether a leaf goes by that name: its own, or that of a branch it hangs on."""
    return leaf == name or leaf.startswith((f"{name}.", f"{name}["))


def _require_floats(name: str, arguments: Arrays, flat: Arrays, without: frozenset[str]) -> None:
    """Refuse arrays of another library, and inputs that hold nothing to differentiate."""
    for one, leaf in flat.items():
        library = type(leaf).__module__.partition(".")[0]
        numbers = not str(getattr(leaf, "dtype", "key")).startswith("key")  # JAX's random keys are passed through
        if library in ("torch", "jax", "jaxlib", "cupy") and numbers:
            check = f"numpy_attention.gradcheck.adapters.check_{library.removesuffix('lib')}"
            raise TypeError(f"gradcheck {name}: {one} is an array of {library}'s; use {check}, or pass one of NumPy's")
    if not any(is_float(leaf) and one not in without for one, leaf in flat.items()):
        kinds = ", ".join(f"{one} is {_kind(leaf)}" for one, leaf in flat.items()) or "there are none"
        fix = "" if without else "; convert what is to be differentiated: x.astype(float)"
        raise ValueError(f"gradcheck {name}: the inputs hold no floats that have a gradient ({kinds}){fix}")


def _kind(leaf: Any) -> str:
    return str(leaf.dtype) if hasattr(leaf, "dtype") else type(leaf).__name__


def name_inputs(f: Callable[..., Any], inputs: Inputs) -> tuple[Arrays, list[str]]:
    """The inputs by argument name, and the names of those that are passed by position."""
    parameters = parameters_of(f)
    kinds = {parameter.kind for parameter in parameters.values()}
    names = [
        one for one, parameter in parameters.items()
        if parameter.kind in (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    ]
    if isinstance(inputs, Mapping):  # in argument order, for so the gradients come
        named = {name: inputs[name] for name in [*names, *inputs] if name in inputs}
        unknown = [name for name in named if name not in parameters and Parameter.VAR_KEYWORD not in kinds]
        if not unknown:
            return named, list(itertools.takewhile(named.__contains__, names))
        if names:
            known = ", ".join(parameters)
            raise TypeError(f"gradcheck {name_of(f)}: it has no argument called {unknown[0]!r}; it takes {known}")
        return named, list(named)
    if not isinstance(inputs, (tuple, list)):
        raise TypeError(
            f"gradcheck {name_of(f)}: inputs must be a dict by argument name or a tuple in argument order, "
            f"got {type(inputs).__name__}; for one array write (x,)"
        )
    names += [f"argument{i}" for i in range(len(names), len(inputs))]
    named = dict(zip(names, inputs, strict=False))
    return named, list(named)


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
