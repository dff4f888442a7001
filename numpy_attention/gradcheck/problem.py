"""A problem to check, in one form: a function of named arrays, and the analytic gradients from its backward.

    OpProblem          y, cache = op(x, w)                   dx, dw = op_backward(dy, cache)
    FunctionProblem    y = f(x, w)                           dx, dw = vjp(dy, x, w)
    LayerProblem       y, cache = layer.forward(x)           dx, gradients by name = layer.backward(dy, cache)
                       loss, cache = model.loss(ids)         gradients by name = model.backward(cache)

Inputs and outputs may be trees of arrays (`trees`). A problem has a name for each leaf, such as `params.w`, and puts
the trees together again for every call of the function.

A layer becomes a function of its inputs and of all its arrays. The check computes with a copy of the layer, so the
layer does not change. Frozen parameters are inputs without a gradient, so they are converted to float64 too.

`run_backward` runs the forward and the backward once, with a random dy (a dy of ones would hide a gradient that sums to
zero, such as a softmax's). It refuses results that are not gradients: NaN, a wrong shape or dtype, inputs or dy changed
in place, two calls that return different results.
"""

import copy
import inspect
import itertools
import math
import re
import reprlib
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from inspect import Parameter
from pathlib import Path
from typing import Any

import numpy as np

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
    own,
    put_together,
    taken_apart,
    tree_map,
)

__all__ = [
    "Arrays", "FunctionProblem", "Gradients", "Inputs", "LayerProblem", "OpProblem", "Problem", "in_float64",
    "is_float", "is_meant", "is_number", "name_inputs", "random_cotangent", "run_backward",
]

Inputs = Mapping[str, Any] | tuple[Any, ...] | list[Any]
Options = Mapping[str, Any]
Outputs = tuple[np.ndarray, ...]
Evaluate = Callable[[], Outputs]

OWN: dict[str, Any] = {  # defaults of the checker
    "seed": 0, "reference": "both", "no_gradient": (), "skip": None, "rtol": 0.0, "atol": 0.0, "nondet": 0.0,
    "robustness": True,
}
REFERENCES = ("both", "complex", "differences")
LIKELY = "\nlikely mistake: "
KNOWN = "a small known difference is allowed by nondet=..."
LIBRARIES = re.compile(r"-packages/(numpy|torch|jax|autograd|cupy)/|numpy_attention/gradcheck/")  # not the user's code


class Problem:
    """A function of named arrays and its backward. A subclass defines `call` and `backward`.

    `arguments` are trees; `inputs` holds copies of their leaves by name, so the caller's arrays never change.
    """

    skip: Mapping[str, np.ndarray] = {}  # masks of elements that are not compared
    nondet = 0.0  # the largest difference between two runs

    def __init__(self, name: str, arguments: Arrays, options: Options, no_gradient: Sequence[str] = ()) -> None:
        self.name, self.arguments, self.options = name, arguments, options
        self.inputs: Arrays = {}
        for argument, value in arguments.items():
            for one, leaf in taken_apart(value, argument).items():
                self.inputs[one] = leaf.copy(order="K") if isinstance(leaf, np.ndarray) else leaf
        self.parameters: frozenset[str] = frozenset()  # the parameters of a layer
        self.without = _without(name, self.inputs, no_gradient)  # the names of arrays without a gradient
        self.counted = [0]  # the calls of the function, by this problem and all its copies
        # Whether inputs or outputs hold complex numbers; the outputs are known after the first call.
        self.complex = has_complex(*arguments.values())
        _require_arrays(name, self.inputs, self.without)

    def call(self, arguments: Arrays, options: Arrays) -> tuple[Any, Any]:
        """The output and a cache."""
        raise NotImplementedError

    def backward(self, dy: Any, cache: Any) -> Any:
        """The gradients, as the backward returns them."""
        raise NotImplementedError

    @property
    def calls(self) -> int:
        """The number of calls of the function so far."""
        return self.counted[0]

    @property
    def differentiable(self) -> list[str]:
        """The names of the arrays of floats."""
        return [name for name, value in self.inputs.items() if is_float(value)]

    @property
    def with_gradient(self) -> list[str]:
        """The names of the arrays that have a gradient; only these arrays move."""
        return [name for name in self.differentiable if name not in self.without]

    @property
    def upstream(self) -> str:
        """The gradient of the output in messages: dy, unless this is the gradient of an argument y."""
        return "the upstream gradient" if "y" in self.arguments else "dy"

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
        self.counted[0] += 1
        y, cache = self.call(put_together(self.arguments, arrays), fresh(self.options, arrays))
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
        kept = unused(arguments, options)
        given = [arguments.pop(one) for one in self.in_order]
        return self.op(*given, **arguments, **options), kept

    def backward(self, dy: Any, cache: Any) -> Any:
        arguments, options = unused(*cache)
        given = [arguments.pop(one) for one in self.in_order]
        return self.op_backward(dy, *given, **arguments, **options)


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
        self.counted[0] += 1
        return forward_of(layer)(**put_together(self.named, arrays), **fresh(self.options, arrays))

    def bind(self, arrays: Arrays) -> Evaluate:
        bound = with_parameters(self.layer, arrays)  # one copy for all calls
        return lambda: outputs_of(self._forward(bound, arrays)[0], split=not has_complex(*arrays.values()))

    def use_again(self, cache: Any, arrays: Arrays) -> None:
        self._forward(cache[-1][0], arrays)


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


def is_float(value: object) -> bool:
    """Whether this input is an array of floats; only these are differentiated."""
    return kind_of(value) == "f" and not is_scalar(value)


def is_number(value: object) -> bool:
    """Whether this input is an array of floats or complex numbers."""
    return kind_of(value) in ("f", "c") and not is_scalar(value)


def is_meant(leaf: str, name: str) -> bool:
    """Whether `name` is the leaf, or a branch of the tree that contains the leaf."""
    return leaf == name or leaf.startswith((f"{name}.", f"{name}["))


def in_float64(arrays: Mapping[str, Any]) -> Arrays:
    """Copies of the arrays of floats in float64 and C order, which may be changed in place; other values unchanged."""
    return {name: np.array(one, np.float64, order="C") if is_float(one) else one for name, one in arrays.items()}


def name_of(f: Any) -> str:
    """The name of a function in messages."""
    return str(getattr(f, "__name__", None) or getattr(getattr(f, "func", None), "__name__", None) or type(f).__name__)


def parameters_of(f: Callable[..., Any]) -> dict[str, Parameter]:
    """The parameters of a function by name; empty for a function without a signature, as some functions in C."""
    if isinstance(f, np.ufunc):  # before NumPy 2.4, inspect.signature raises an error for these
        names = ["x"] if f.nin == 1 else [f"x{i + 1}" for i in range(f.nin)]
        return {name: Parameter(name, Parameter.POSITIONAL_ONLY) for name in names}
    try:
        return dict(inspect.signature(f).parameters)
    except (TypeError, ValueError):
        return {}


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


def checked(name: str, seed: Any, reference: Any, rtol: Any, atol: Any, nondet: Any = 0.0) -> tuple[int, Any, Any, Any]:
    """The seed and the three tolerances as plain numbers; `name` is for messages.

    Raises: ValueError, in one line, for a value that is not valid.
    """
    if reference not in REFERENCES:
        raise ValueError(f"gradcheck {name}: reference must be one of {', '.join(REFERENCES)}, got {reference!r}")
    for option, value in {"seed": seed, "rtol": rtol, "atol": atol, "nondet": nondet}.items():
        whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
        real = whole if option == "seed" else whole or isinstance(value, (float, np.floating))
        if not (real and 0 <= value < math.inf):
            expected = f"a {'whole' if option == 'seed' else 'finite'} number, 0 or more"
            raise ValueError(f"gradcheck {name}: {option} must be {expected}, got {reprlib.repr(value)}")
    return int(seed), float(rtol), float(atol), float(nondet)


def split_options(
    f: Callable[..., Any], options: Options | None, more: Options, own: Options | None = None
) -> dict[str, Any]:
    """The options of f: the keywords in `more`, and the dict `options`. `own` are the options of the checker.

    Options are passed to f unchanged; there is no gradient for them. If f and the checker both have an option `seed`,
    the keyword sets the option of the checker, and `options={"seed": 3}` sets the option of f.

    Raises: TypeError for an option that is given twice, and for an option that f and the checker both have.
    """
    name = name_of(f)
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
    """The options for one call: generators are copied, arrays of floats get the dtype of the inputs (or float64)."""
    if not options:
        return {}
    numbers = [array for array in arrays.values() if is_number(array)]
    dtype = max(numbers, key=lambda array: array.ndim > 0).dtype if numbers else None  # of the first array with axes
    return {name: value.astype(dtype) if is_float(value) else own(value) for name, value in options.items()}


def unused(arguments: Arrays, options: Arrays) -> tuple[Arrays, Arrays]:
    """The same with copies of their random generators: f and vjp must draw the same numbers."""
    return tree_map(lambda _, leaf: own(leaf), arguments), {name: own(value) for name, value in options.items()}


def by_leaf(problem: Problem, option: str, given: Any, dtype: type) -> dict[str, np.ndarray]:
    """The array that an option such as `skip` or `v` holds for each array with a gradient, by the name of this array.

    Raises: TypeError or ValueError, in one line, for a value that is not valid.
    """
    if isinstance(given, (tuple, list)):  # in argument order
        if len(given) > (most := len(problem.arguments)):
            raise ValueError(f"gradcheck {problem.name}: {option} must hold at most {most} arrays, got {len(given)}")
        given = dict(zip(problem.arguments, given))
    if not isinstance(given, Mapping):
        raise TypeError(f"gradcheck {problem.name}: {option} must be a dict by name, got {type(given).__name__}")
    found: dict[str, np.ndarray] = {}
    parts = ((argument, *leaf) for argument, tree in given.items() for leaf in taken_apart(tree, argument).items())
    for argument, name, part in parts:
        meant = [leaf for leaf in problem.with_gradient if is_meant(leaf, name)]
        if not meant:
            names = f"the names in {option} must be among {', '.join(problem.with_gradient)}, got {name!r}"
            fix = f"; {argument} is one array" if argument in problem.with_gradient else ""
            raise ValueError(f"gradcheck {problem.name}: {names}{fix}")
        for leaf in meant:
            array, shape = np.asarray(part), problem.inputs[leaf].shape
            if array.shape != shape or (dtype is bool and array.dtype != bool):
                expected = f"{dtype.__name__}s of shape {shape}, the shape of {leaf}"
                got = f"{array.dtype} of shape {array.shape}"
                raise ValueError(f"gradcheck {problem.name}: {option}[{name!r}] must be {expected}, got {got}")
            found[leaf] = np.asarray(array, dtype)
    return found


def _without(name: str, flat: Arrays, no_gradient: Sequence[str]) -> frozenset[str]:
    """The names of the arrays that `no_gradient` lists."""
    names = [no_gradient] if isinstance(no_gradient, str) else no_gradient
    for one in names:
        if not any(is_meant(leaf, one) for leaf in flat):
            raise ValueError(f"gradcheck {name}: no_gradient lists {one!r}, but the inputs are {', '.join(flat)}")
    return frozenset(leaf for leaf in flat if any(is_meant(leaf, one) for one in names))


def _require_arrays(name: str, flat: Arrays, without: frozenset[str]) -> None:
    """Refuse arrays of another library, masked arrays, and inputs without an array to differentiate."""
    for one, leaf in flat.items():
        library = type(leaf).__module__.partition(".")[0]
        if library in ("torch", "jax", "jaxlib", "cupy") and "float" in str(getattr(leaf, "dtype", "")):
            check = f"numpy_attention.gradcheck.adapters.check_{library.removesuffix('lib')}"
            raise TypeError(f"gradcheck {name}: {one} is a {library} array; use {check}, or pass a NumPy array")
        if isinstance(leaf, np.ma.MaskedArray):
            fix = f"pass {one}.data, and the mask as another argument, an array of booleans"
            raise TypeError(f"gradcheck {name}: {one} is a masked array; {fix}")
    if not any(is_float(leaf) and one not in without for one, leaf in flat.items()):
        kinds = ", ".join(f"{one} is {_kind(leaf)}" for one, leaf in flat.items()) or "no inputs"
        fix = "" if without else "; convert an input to floats: x.astype(float)"
        raise ValueError(f"gradcheck {name}: the inputs hold no floats that have a gradient ({kinds}){fix}")


def _kind(leaf: Any) -> str:
    return str(leaf.dtype) if hasattr(leaf, "dtype") else type(leaf).__name__


def run_backward(problem: Problem, seed: int) -> tuple[Outputs, Gradients]:
    """Run forward and backward with a random dy; return dy and the gradients.

    Raises: GradientError for gradients that are not valid; TypeError for a masked array.
    """
    repeat = f"; repeat with seed={seed}"
    for name in problem.with_gradient:
        fix = f"; if {name} has no gradient, pass no_gradient=[{name!r}]; skip={{{name!r}: mask}} leaves out elements"
        _require_finite(problem, f"the input {name}", np.where(problem.kept(name), problem.inputs[name], 0.0), fix)
    before = {name: value.copy() for name, value in problem.inputs.items() if isinstance(value, np.ndarray)}
    y, cache = problem.run(problem.inputs)
    _require_unchanged(problem, before, "forward")
    if any(isinstance(one, np.ma.MaskedArray) for one in problem.returned(cache)):
        raise TypeError(f"gradcheck {problem.name}: the function returns a masked array; return y.filled(0.0)")
    for i, one in enumerate(y):
        _require_finite(problem, "the output" if len(y) == 1 else f"output {i}", one, _causes_of_nan(problem) + repeat)
    _require_function(problem, y)
    dy = random_cotangent(y, seed)
    dy_before = tuple(one.copy() for one in dy)
    grads = _first_gradients(problem, dy, cache, repeat)
    _require_floats(problem, grads)
    _require_unchanged(problem, before, "backward")
    if not all(np.array_equal(a, b) for a, b in zip(dy, dy_before, strict=True)):
        why = "a residual branch that uses the same array would then get wrong numbers"
        raise problem.error(f"backward changed {problem.upstream} in place; {why}")
    _require_repeatable(problem, dy, cache, grads)
    for name in problem.differentiable:
        grad = grads.get(name)
        if grad is not None:
            _require_shape(problem, name, grads, y)
            _require_finite(problem, f"d{name}", grad, _causes_of_nan(problem) + repeat)
        elif name not in problem.without:
            kind = "parameter" if name in problem.parameters else "argument"
            fix = f"; if {name} has no gradient, pass no_gradient=[{name!r}]" if kind == "argument" else ""
            raise problem.error(f"backward returned no gradient for the {kind} {name}{fix}")
    return dy, grads


def largest(x: np.ndarray) -> float:
    """The largest absolute value; 0 for an empty array."""
    return float(np.max(np.abs(x), initial=0.0))


def random_cotangent(y: Outputs, seed: int) -> Outputs:
    """A random normal dy for each output, in the dtype of the output."""
    rng = np.random.default_rng([seed, 7])
    return tuple(np.asarray(rng.standard_normal(one.shape), one.dtype) for one in y)


def _first_gradients(problem: Problem, dy: Outputs, cache: Any, repeat: str) -> Gradients:
    try:
        returned = problem.pull_back(dy, cache)
    except GradientError:  # the form of the gradients is wrong
        raise
    except Exception as error:
        text = f"the backward raised {type(error).__name__}: {error}{repeat}"
        raise problem.error(text + _line_of(error) + _mistake_behind(error)) from error
    return {name: None if grad is None else np.array(grad) for name, grad in returned.items()}


def _line_of(error: Exception) -> str:
    """The last line of the user's code in a traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if not LIBRARIES.search(Path(frame.filename).as_posix())]
    return f"\n  {theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""


def _mistake_behind(error: Exception) -> str:
    """The likely mistake behind an error of NumPy about shapes or axes; "" for any other error."""
    text, likely = str(error), ""
    shapes = [tuple(map(int, re.findall(r"\d+", shape))) for shape in re.findall(r"\([\d, ]*\)", text)[:2]]
    if re.search("matmul|not aligned|remapped shapes|axes don't match|out of bounds for array of dimension", text):
        likely = "a factor that should be transposed, or axes of the wrong argument"
    elif "broadcast" in text and len(shapes) == 2:
        few, many = sorted(shapes, key=len)
        if few == many[::-1]:
            likely = "a factor that should be transposed"
        elif any(broadcasts_to((*few[:i], 1, *few[i:]), many) for i in range(1, len(few) + 1)):
            surplus = "non-broadcastable output" in text
            likely = f"a {'superfluous' if surplus else 'missing'} [:, None] or keepdims=True"
    return LIKELY + likely if likely else ""


def _require_unchanged(problem: Problem, before: Arrays, caller: str) -> None:
    for name, value in before.items():
        if not np.array_equal(problem.inputs[name], value, equal_nan=value.dtype.kind == "f"):
            raise problem.error(f"the input {name} was changed in place; use a new array in the {caller}")


def _require_function(problem: Problem, y: Outputs) -> None:
    """Two calls with the same arrays must return the same result."""
    again = problem.run(problem.inputs)[0]
    if len(y) != len(again) or not all(same(*pair, problem.nondet) for pair in zip(y, again)):
        fix = "pass a seeded np.random.Generator as an option (it is copied for every call), or create one inside"
        raise problem.error(f"two calls with the same arrays return different results; {fix}; {KNOWN}")


def _require_repeatable(problem: Problem, dy: Outputs, cache: Any, grads: Gradients) -> None:
    """Two calls of the backward with one cache must return the same gradients."""
    advice = "does backward change its cache in place? or does it draw random numbers?"
    try:
        repeated = problem.pull_back(dy, cache)
    except Exception as error:
        text = f"a second call of backward raised {type(error).__name__}: {error}"
        raise problem.error(f"{text}; {advice}") from error
    # The round-off of a gradient that is zero in theory may be as large as this gradient.
    least = max((largest(grad) for grad in grads.values() if grad is not None), default=0.0)
    for name, again in repeated.items():
        first = grads[name]
        if first is not None and again is not None and not same(first, np.asarray(again), problem.nondet, least):
            raise problem.error(f"two calls of backward return different d{name}; {advice} {KNOWN}")


def same(one: np.ndarray, again: np.ndarray, nondet: float, least: float = 0.0) -> bool:
    """Whether two arrays are equal up to `nondet` and the round-off of terms of their size, or of size `least`."""
    if one.shape != again.shape:
        return False
    few = nondet + 64 * float(np.finfo(one.dtype).eps) * max(largest(one), least)
    return np.array_equal(one, again, equal_nan=True) or bool(np.all(np.abs(one - again) <= few))


def _require_floats(problem: Problem, grads: Gradients) -> None:
    """The gradient of an array of floats must be an array of floats."""
    for name, grad in grads.items():
        if grad is None or grad.dtype.kind == "f" or not is_float(problem.inputs[name]):
            continue
        if grad.dtype.kind == "c":
            raise problem.error(f"d{name} is complex, but {name} is real: do you mean the real part?")
        text = f"d{name} holds {grad.dtype}, but {name} holds {problem.inputs[name].dtype}: a gradient must be floats"
        if grad.dtype.kind in "iub":
            text += f"; is it created like an array of integers, or a comparison not multiplied by {problem.upstream}?"
        raise problem.error(text)


def _require_finite(problem: Problem, what: str, value: np.ndarray, advice: str) -> None:
    bad = ~np.isfinite(value)
    if bad.any():
        index = tuple(int(i) for i in np.argwhere(bad)[0])
        count = f"{int(bad.sum())} of {value.size} elements are NaN or infinite"
        raise problem.error(f"{what} holds {value[index]} at index {index} ({count}){advice}")


def _causes_of_nan(problem: Problem) -> str:
    kinds = {value.dtype.kind for value in problem.inputs.values() if isinstance(value, np.ndarray)}
    causes = f"{LIKELY}0/0, log(0), inf - inf, or the exponential of a large number, at this index"
    if "b" in kinds:
        causes += "; a row whose mask is all False must give zeros, and the backward must apply the mask too"
    elif kinds & set("iu"):
        causes += "; ignored elements must be left out, not multiplied by 0: 0 times infinity is NaN"
    return causes


def _require_shape(problem: Problem, name: str, grads: Gradients, y: Outputs) -> None:
    shapes = {other: problem.inputs[other].shape for other in problem.differentiable}
    found = {one: grad.shape for one, grad in grads.items() if grad is not None}
    got, expected = found[name], shapes.pop(name)
    if got != expected:
        swapped = any(found.get(other) == expected != shape for other, shape in shapes.items())
        outputs = [] if swapped else [one.shape for one in y]
        mistake = explain_shape(got, expected, shapes, outputs)
        raise problem.error(f"d{name} has shape {got}, but {name} has {expected}{LIKELY}{mistake}")


def broadcasts_to(shape: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Whether an array of this shape broadcasts to the other shape, as (4, 1) to (2, 4, 5)."""
    return len(shape) <= len(other) and all(a in (1, b) for a, b in zip(shape[::-1], other[::-1]))


def explain_shape(
    got: tuple[int, ...], expected: tuple[int, ...], others: Mapping[str, tuple[int, ...]] | None = None,
    outputs: Iterable[tuple[int, ...]] = (),
) -> str:
    """The likely mistake if a gradient has a wrong shape.

    `others` are the shapes of the other arguments. A gradient in the shape of an output, to which its argument was
    broadcast, lacks a sum, although another argument may have this shape too.
    """
    unsummed = got in outputs and broadcasts_to(expected, got)
    for other, shape in (others or {}).items():
        if shape == got and not unsummed:
            return f"this is the shape of {other}: are the arguments, or the gradients, in the right order?"
    extra = len(got) - len(expected)
    if extra > 0 and got[extra:] == expected:
        flat = ", or a reshape to the shape of the argument" if set(got[:extra]) == {1} else ""
        if not expected:
            return "the argument is a single number, so its gradient is one, too: is a sum over all axes missing?"
        missing = f"the sum over the batch axes {tuple(range(extra))} is missing"
        return f"{missing}{flat}: sum over all axes that the argument does not have"
    if len(got) == len(expected) and sorted(got) == sorted(expected):
        return "transposed"
    if broadcasts_to(expected, got):
        axes = tuple(i for i, (a, b) in enumerate(zip(got, (1,) * extra + expected)) if a != b)
        return (
            f"the sum over axes {axes}, along which the argument was broadcast, is missing; or a sum without "
            "keepdims=True was broadcast"
        )
    if math.prod(got) == math.prod(expected):
        return "the right number of elements: a reshape is missing"
    if extra < 0:
        return "summed over too many axes, or not broadcast back over the axes that the forward summed"
    return "a gradient must have the shape of its argument"
