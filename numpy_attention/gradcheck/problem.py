"""A problem to check, in one form: a function of named arrays, and the analytic gradients from its backward.

    OpProblem          y, cache = op(x, w)                   dx, dw = op_backward(dy, cache)
    FunctionProblem    y = f(x, w)                           dx, dw = vjp(dy, x, w)
    LayerProblem       y, cache = layer.forward(x)           dx, gradients by name = layer.backward(dy, cache)
                       loss, cache = model.loss(ids)         gradients by name = model.backward(cache)

Inputs and outputs may be trees of arrays (`trees`). A problem has a name for each leaf, such as `params.w`, and puts
the trees together again for every call of the function.

A layer becomes a function of its inputs and all its parameters. The check computes with a copy of the layer and changes
only the arrays of the copy, so the layer itself does not change. The other arrays of the layer, such as frozen
parameters, are inputs without a gradient, so they are converted to float64 or copied to a GPU too.

Options are passed to the function unchanged; there is no gradient for them. The function and the checker may have
options of the same name, such as `seed` or `rtol`. Then the keyword sets the option of the checker, and
`options={"seed": 3}` sets the option of the function.
"""

import copy
import inspect
import itertools
import math
import reprlib
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any

import numpy as np

from numpy_attention.gradcheck.line import Evaluate, Outputs
from numpy_attention.gradcheck.report import GradientError
from numpy_attention.gradcheck.trees import (
    Arrays,
    Gradients,
    cotangent_of,
    has_complex,
    is_scalar,
    kind_of,
    leaves,
    match_gradients,
    outputs_of,
    put_together_each,
    taken_apart,
)

__all__ = [
    "Arrays", "FunctionProblem", "Gradients", "Inputs", "LayerProblem", "OpProblem", "Problem", "in_float64",
    "is_float", "is_meant", "is_number", "name_inputs",
]

Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any]
Options = Mapping[str, Any]

OWN: dict[str, Any] = {  # defaults of the checker
    "seed": 0, "reference": "both", "no_gradient": (), "skip": None, "rtol": 0.0, "atol": 0.0, "nondet": 0.0,
    "robustness": True, "gradgrad": False,
}
REFERENCES = ("both", "complex", "differences")


def checked(
    name: str, seed: Any, reference: Any, rtol: Any, atol: Any, nondet: Any = 0.0, gradgrad: Any = False
) -> tuple[int, float, float, float]:
    """The seed and the three tolerances as plain numbers; `name` is for messages.

    Raises: TypeError or ValueError, in one line, for a value that is not valid.
    """

    def require(option: str, value: Any, expected: str, kind: bool, range: bool) -> None:
        if not (kind and range):
            error = ValueError if kind else TypeError
            raise error(f"gradcheck {name}: {option} must be {expected}, got {reprlib.repr(value)}")

    known = isinstance(reference, str) and reference in REFERENCES
    require("reference", reference, f"one of {', '.join(REFERENCES)}", True, known)
    require("gradgrad", gradgrad, "True or False", isinstance(gradgrad, (bool, np.bool_)), True)
    whole = isinstance(seed, (int, np.integer)) and not isinstance(seed, bool)
    require("seed", seed, "a whole number, 0 or more", whole, whole and seed >= 0)
    for option, value in {"rtol": rtol, "atol": atol, "nondet": nondet}.items():
        real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
        require(option, value, "a finite number, 0 or more", real, real and 0 <= value < math.inf)
    return int(seed), float(rtol), float(atol), float(nondet)


def by_leaf(problem: "Problem", option: str, given: Any, dtype: type) -> dict[str, np.ndarray]:
    """The array that an option such as `skip` or `v` holds for each array with a gradient, by the name of this array.

    Raises: TypeError or ValueError, in one line, for a value that is not valid.
    """
    if isinstance(given, (tuple, list)):  # in argument order
        if len(given) > (most := len(problem.arguments)):
            raise ValueError(f"gradcheck {problem.name}: {option} must hold at most {most} arrays, got {len(given)}")
        given = dict(zip(problem.arguments, given))
    if not isinstance(given, Mapping):
        raise TypeError(f"gradcheck {problem.name}: {option} must be a dict by name, got {type(given).__name__}")
    known = [name for name in problem.differentiable if name not in problem.without]
    found: dict[str, np.ndarray] = {}
    parts = ((argument, *leaf) for argument, tree in given.items() for leaf in taken_apart(tree, argument).items())
    for argument, name, part in parts:
        meant = [leaf for leaf in known if is_meant(leaf, name)]
        if not meant:
            names = f"the names in {option} must be among {', '.join(known)}, got {name!r}"
            fix = f"; {argument} is one array" if argument in known else ""
            raise ValueError(f"gradcheck {problem.name}: {names}{fix}")
        for leaf in meant:
            array, shape = np.asarray(part), problem.inputs[leaf].shape
            if array.shape != shape or (dtype is bool and array.dtype != bool):
                expected = f"{dtype.__name__}s of shape {shape}, the shape of {leaf}"
                got = f"{array.dtype} of shape {array.shape}"
                raise ValueError(f"gradcheck {problem.name}: {option}[{name!r}] must be {expected}, got {got}")
            found[leaf] = np.asarray(array, dtype)
    return found


def split_options(
    f: Callable[..., Any], options: Options | None, more: Options, own: Options | None = None
) -> dict[str, Any]:
    """The options of f: the keywords in `more`, and the dict `options`. `own` are the options of the checker.

    Raises: TypeError for an option that is given twice, and for an option that f and the checker both have.
    """
    name = name_of(f)
    if options is not None and not isinstance(options, Mapping):
        raise TypeError(f"gradcheck {name}: options must be a dict by name, got {type(options).__name__}")
    found = dict(options or {})
    if twice := [option for option in more if option in found]:
        raise TypeError(f"gradcheck {name}: the option {twice[0]} was given twice, by keyword and in options")
    found |= more
    for option, value in (own or {}).items():
        if np.any(value != OWN[option]) and option not in found and option in parameters_of(f):
            raise TypeError(
                f"gradcheck {name}: {option}={reprlib.repr(value)} sets the checker's option, but {name} has an option "
                f"{option} too; set that option by options={{{option!r}: ...}}"
            )
    return found


def fresh(options: Options, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The options for one call. Generators are copied, so every call draws the same dropout mask. Arrays of floats get
    the dtype of the inputs, which is float64 for differences."""
    if not options:
        return {}
    numbers = [array for array in arrays.values() if getattr(getattr(array, "dtype", None), "kind", "") in ("f", "c")]
    dtype = max(numbers, key=lambda array: array.ndim > 0).dtype if numbers else None  # of the first array with axes
    copied = with_own_generators(options)
    return {name: value.astype(dtype) if is_float(value) else value for name, value in copied.items()}


def with_own_generators(options: Options) -> dict[str, Any]:
    """The options with copies of the generators, each in its current state."""
    return {
        name: copy.deepcopy(value) if isinstance(value, (np.random.Generator, np.random.RandomState)) else value
        for name, value in options.items()
    }


def parameters_of(f: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function by name; empty for a function without a signature, as some functions in C."""
    if isinstance(f, np.ufunc):  # before NumPy 2.4, inspect.signature raises an error for these
        names = ["x"] if f.nin == 1 else [f"x{i + 1}" for i in range(f.nin)]
        return {name: Parameter(name, Parameter.POSITIONAL_ONLY) for name in names}
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return {}


def name_of(f: Any) -> str:
    """The name of a function in messages."""
    return str(getattr(f, "__name__", None) or getattr(getattr(f, "func", None), "__name__", None) or type(f).__name__)


class Problem:
    """A function of named arrays and its backward. A subclass defines `call` and `backward`.

    `arguments` are trees; `inputs` holds copies of their leaves by name, so the caller's arrays never change.
    """

    skip: Mapping[str, np.ndarray] = {}  # masks of elements that are not compared
    nondet = 0.0  # the largest difference between two runs
    likely = ""  # the diagnosis, if it is known before the check

    def __init__(self, name: str, arguments: Arrays, options: Options, no_gradient: Sequence[str] = ()) -> None:
        self.name, self.arguments, self.options = name, arguments, options
        self.inputs: Arrays = {}
        for argument, value in arguments.items():
            for one, leaf in taken_apart(value, argument).items():
                self.inputs[one] = leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf
        self.parameters: frozenset[str] = frozenset()  # the parameters of a layer
        self.without = _without(name, self.inputs, no_gradient)  # names of arrays of floats without a gradient
        # Whether inputs or outputs hold complex numbers; the outputs are known after the first call.
        self.complex = has_complex(*arguments.values())
        _require_floats(name, self.inputs, self.without)

    def call(self, arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        """The output and a cache."""
        raise NotImplementedError

    def backward(self, dy: Any, cache: Any) -> Any:
        """The gradients, as the backward returns them."""
        raise NotImplementedError

    @property
    def differentiable(self) -> list[str]:
        """The names of the arrays of floats."""
        return [name for name, value in self.inputs.items() if is_float(value)]

    def error(self, text: str) -> GradientError:
        """An error about this problem."""
        return GradientError(f"gradcheck {self.name}: {text}")

    def with_changes(self, **changes: Any) -> "Problem":
        """A copy of the problem with other attributes or methods."""
        other = copy.copy(self)
        vars(other).update(changes)
        return other

    def with_options(self, options: Options) -> "Problem":
        """A copy of the problem with other options."""
        return self.with_changes(options=options)

    def run(self, arrays: Arrays) -> tuple[Outputs, Any]:
        """The outputs at these arrays, and a cache for `pull_back`."""
        y, cache = self.call(put_together_each(self.arguments, arrays), fresh(self.options, arrays))
        real = not has_complex(*arrays.values())  # arrays are complex only in a complex step
        outputs = outputs_of(y, split=real)
        self.complex |= real and has_complex(y)
        if not outputs:
            kinds = ", ".join(_kind(leaf) for _, leaf in leaves(y)) or "nothing"
            raise TypeError(f"gradcheck {self.name}: the function must return arrays of floats, got {kinds}")
        return outputs, (y, real, cache)

    def pull_back(self, dy: Outputs, cache: Any) -> Gradients:
        """The gradients by name, from a cache of `run`."""
        y, real, inner = cache
        returned = self.backward(cotangent_of(y, dy, split=real), inner)
        _, grads = match_gradients(self.name, returned, self.arguments)
        for one, mask in self.skip.items():  # a skipped element may be NaN
            if (grad := grads.get(one)) is not None and grad.shape == mask.shape:
                grads[one] = np.where(mask, np.zeros_like(grad), grad)
        return {one: None if one in self.without else grad for one, grad in grads.items()}

    def kept(self, name: str) -> np.ndarray:
        """The elements of an array that are compared."""
        return ~self.skip.get(name, np.zeros(self.inputs[name].shape, dtype=bool))

    def gradients(self, arrays: Arrays, dy: Outputs) -> Gradients:
        """The gradients by name at these arrays."""
        return self.pull_back(dy, self.run(arrays)[1])

    def bind(self, arrays: Arrays) -> Evaluate:
        """A function without arguments that computes the outputs from the current values of the arrays."""
        return lambda: self.run(arrays)[0]

    def returned(self, cache: Any) -> list[np.ndarray]:
        """The arrays (not copies) that the function returned together with this cache."""
        return [leaf for _, leaf in leaves(cache[0]) if isinstance(leaf, np.ndarray)]

    def use_again(self, cache: Any, arrays: Arrays) -> None:
        """Run the forward of the same layer object again; `run` makes a new copy of the layer each time."""


class OpProblem(Problem):
    """An op and its backward: `y, cache = op(...)`, `op_backward(dy, cache)`."""

    def __init__(
        self, op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, options: Options,
        no_gradient: Sequence[str] = (),
    ) -> None:
        self.op, self.op_backward = op, op_backward
        named, self.in_order = name_inputs(op, inputs)
        super().__init__(name_of(op), named, options, no_gradient)

    def call(self, arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        given = [arguments.pop(one) for one in self.in_order]
        answer = self.op(*given, **arguments, **options)
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TypeError(
                f"gradcheck: {self.name} must return (y, cache), got {type(answer).__name__}; "
                "is it a plain function? Then use gradcheck_vjp(f, vjp, inputs)"
            )
        return answer

    def backward(self, dy: Any, cache: Any) -> Any:
        return self.op_backward(dy, cache)


class FunctionProblem(OpProblem):
    """A plain function `y = f(...)` with its vector-Jacobian product `gradients = vjp(dy, ...)`."""

    def call(self, arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        given = [arguments.pop(one) for one in self.in_order]
        kept = with_own_generators(options)  # f and vjp must draw the same random numbers
        return self.op(*given, **arguments, **options), (given, arguments, kept)

    def backward(self, dy: Any, cache: Any) -> Any:
        given, arguments, options = cache
        return self.op_backward(dy, *given, **arguments, **with_own_generators(options))


class LayerProblem(OpProblem):
    """A layer or a model: a function of its inputs and of all its parameters."""

    def __init__(self, layer: Any, inputs: Inputs, options: Options, no_gradient: Sequence[str] = ()) -> None:
        name = type(layer).__name__
        self.layer, held = layer, arrays_of(layer)
        self.named, _ = name_inputs(forward_of(layer), inputs)
        clash = sorted(set(held) & set(self.named))
        if clash:
            raise ValueError(f"gradcheck: {name} has an input and a parameter called {clash[0]}")
        (self.op, self.op_backward), self.in_order = layer_as_op(layer, tuple(self.named)), []
        Problem.__init__(self, name, {**self.named, **held}, options, no_gradient)
        self.parameters = frozenset(layer.parameters())
        self.without |= frozenset(held) - self.parameters
        if hasattr(layer, "loss"):
            self.without |= frozenset(self.inputs) - frozenset(held)

    def _forward(self, layer: Any, arrays: Arrays) -> Any:
        return forward_of(layer)(**put_together_each(self.named, arrays), **fresh(self.options, arrays))

    def bind(self, arrays: Arrays) -> Evaluate:
        bound = with_parameters(self.layer, arrays)  # one copy for all calls
        return lambda: outputs_of(self._forward(bound, arrays)[0], split=not has_complex(*arrays.values()))

    def use_again(self, cache: Any, arrays: Arrays) -> None:
        self._forward(cache[-1][0], arrays)


def is_float(value: object) -> bool:
    """Whether this input is an array of floats; only these are differentiated."""
    return kind_of(value) == "f" and not is_scalar(value)


def is_number(value: object) -> bool:
    """Whether this input is an array of floats or complex numbers."""
    return kind_of(value) in ("f", "c") and not is_scalar(value)


def in_float64(arrays: Mapping[str, Any]) -> Arrays:
    """Copies of the arrays of floats in float64 and C order, which may be changed in place; other values unchanged."""
    return {
        name: np.array(value, np.float64, order="C") if is_float(value) or isinstance(value, np.floating) else value
        for name, value in arrays.items()
    }


def _without(name: str, flat: Arrays, no_gradient: Sequence[str]) -> frozenset[str]:
    """The names of the arrays that `no_gradient` lists."""
    names = [no_gradient] if isinstance(no_gradient, str) else no_gradient
    for one in names:
        if not any(is_meant(leaf, one) for leaf in flat):
            raise ValueError(f"gradcheck {name}: no_gradient lists {one!r}, but the inputs are {', '.join(flat)}")
    return frozenset(leaf for leaf in flat if any(is_meant(leaf, one) for one in names))


def is_meant(leaf: str, name: str) -> bool:
    """Whether `name` is the leaf, or a branch of the tree that contains the leaf."""
    return leaf == name or leaf.startswith((f"{name}.", f"{name}["))


def _require_floats(name: str, flat: Arrays, without: frozenset[str]) -> None:
    """Refuse arrays of another library, and inputs without an array to differentiate."""
    for one, leaf in flat.items():
        library = type(leaf).__module__.partition(".")[0]
        numbers = not str(getattr(leaf, "dtype", "key")).startswith("key")  # JAX's random keys are passed through
        if library in ("torch", "jax", "jaxlib", "cupy") and numbers:
            check = f"numpy_attention.gradcheck.adapters.check_{library.removesuffix('lib')}"
            raise TypeError(f"gradcheck {name}: {one} is a {library} array; use {check}, or pass a NumPy array")
    if not any(is_float(leaf) and one not in without for one, leaf in flat.items()):
        kinds = ", ".join(f"{one} is {_kind(leaf)}" for one, leaf in flat.items()) or "no inputs"
        fix = "" if without else "; convert an input to floats: x.astype(float)"
        raise ValueError(f"gradcheck {name}: the inputs hold no floats that have a gradient ({kinds}){fix}")


def _kind(leaf: Any) -> str:
    return str(leaf.dtype) if hasattr(leaf, "dtype") else type(leaf).__name__


def name_inputs(f: Callable[..., Any], inputs: Inputs) -> tuple[Arrays, list[str]]:
    """The inputs by argument name, and the names of the inputs that are passed by position."""
    parameters = parameters_of(f)
    kinds = {name: parameter.kind for name, parameter in parameters.items()}
    by_position = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    names = [name for name, kind in kinds.items() if kind in by_position]
    if isinstance(inputs, Mapping):  # gradients are returned in argument order
        named = {name: inputs[name] for name in [*names, *inputs] if name in inputs}
        unknown = [name for name in named if name not in parameters and Parameter.VAR_KEYWORD not in kinds.values()]
        if unknown and names:
            known = ", ".join(parameters)
            raise TypeError(f"gradcheck {name_of(f)}: it has no argument {unknown[0]!r}; its arguments are {known}")
        return named, list(named if unknown else itertools.takewhile(named.__contains__, names))
    if not isinstance(inputs, (tuple, list)):
        raise TypeError(
            f"gradcheck {name_of(f)}: inputs must be a dict by argument name or a tuple in argument order, "
            f"got {type(inputs).__name__}; for one array write (x,)"
        )
    names += [f"argument{i}" for i in range(len(names), len(inputs))]
    named = dict(zip(names, inputs, strict=False))
    return named, list(named)


def layer_as_op(layer: Any, inputs: tuple[str, ...]) -> tuple[Callable[..., tuple[Any, Any]], Callable[..., Any]]:
    """A layer as an op and its backward; the arguments of the op are the inputs and all arrays of the layer, by name.

    The backward returns its gradients as a dict by argument name. The layer itself is not changed.
    """
    names = arrays_of(layer).keys()

    def op(**arguments: Any) -> tuple[Any, Any]:
        bound = with_parameters(layer, arguments)
        y, cache = forward_of(bound)(**{name: value for name, value in arguments.items() if name not in names})
        return y, (bound, cache, {name: arguments[name] for name in inputs})

    def op_backward(dy: Any, cache: Any) -> dict[str, Any]:
        bound, inner, given = cache
        if hasattr(bound, "loss"):  # the loss is the last step: dy is a factor of all gradients
            return {name: grad * dy.astype(grad.dtype) for name, grad in bound.backward(inner).items()}
        *of_inputs, of_parameters = bound.backward(dy, inner)
        by_argument, _ = match_gradients(type(layer).__name__, tuple(of_inputs), given)
        return {**by_argument, **of_parameters}

    return op, op_backward


def arrays_of(layer: Any) -> Arrays:
    """The parameters of a layer by name, and its other arrays if it has a method `arrays`."""
    found: Arrays = dict(layer.parameters())
    known = {id(p) for p in found.values()}
    others = layer.arrays() if hasattr(layer, "arrays") else ()
    held = {dotted: getattr(owner, name) for dotted, owner, name in others}
    return found | {name: array for name, array in held.items() if id(array) not in known}


def with_parameters(layer: Any, arrays: Mapping[str, Any]) -> Any:
    """A copy of the layer with other arrays; the copy and the caller share these arrays."""
    # deepcopy looks up each object in its memo first; this memo holds the new array for each old one.
    return copy.deepcopy(layer, {id(old): arrays[name] for name, old in arrays_of(layer).items()})


def forward_of(layer: Any) -> Callable[..., Any]:
    """The function to differentiate: the loss of a model, the forward of a layer."""
    return layer.loss if hasattr(layer, "loss") else layer.forward
