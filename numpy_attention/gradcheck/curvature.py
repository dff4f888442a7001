"""Second derivatives without extra code: the complex step of a hand-written backward

A backward is a function too: it computes dx = J^T dy, the gradient of L = sum(dy y). Its derivative is the second
derivative of L, and a complex step computes it in the same way as the first derivative (`complex_step.py`):

    dx(x + i h v) = dx(x) + i h H v - h^2 (...)        so        H v = Im dx(x + i h v) / h

where H is the Hessian, the matrix of second derivatives. H is never built: for n parameters it has n^2 elements. One
run of forward and backward on complex arrays gives H v to the last digits, for all parameters of a model at once.
Second-order optimizers need H v of the loss, and the largest eigenvalue of H limits the learning rate.

A right backward has a symmetric H, since the order of the two derivatives does not matter:

    u^T H v = v^T H u        for all u and v

Symmetry to the last digits supports a backward but does not prove it: the gradient of another function has a
symmetric H too, and a mistake that does not depend on x keeps H symmetric.

Source: Pearlmutter, Fast Exact Multiplication by the Hessian (1994), derives H v for each layer by hand;
Squire, Trapp, Using Complex Variables to Estimate Derivatives of Real Functions (1998), introduce the complex step.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.complex_step import H as STEP
from numpy_attention.gradcheck.complex_step import NoComplexStep, complex_numbers, in_complex
from numpy_attention.gradcheck.line import Outputs, rms
from numpy_attention.gradcheck.problem import (
    FunctionProblem,
    Inputs,
    LayerProblem,
    OpProblem,
    Options,
    Problem,
    forward_of,
    is_float,
    name_inputs,
    split_options,
)
from numpy_attention.gradcheck.tolerance import random_cotangent
from numpy_attention.gradcheck.trees import taken_apart

ByName = dict[str, np.ndarray]


def hvp_layer(
    layer: Any, inputs: Inputs, v: Mapping[str, Any], *, dy: Any = None, options: Options | None = None, **more: Any
) -> ByName:
    """The second derivatives of a model's loss times a direction in its parameters; the model does not change.

    Formula: H v = Im dp(p + i h v) / h, for the gradient dp of the loss and every parameter p

    Shapes: v is a dict by the names of parameters (and of inputs that have a gradient), each of the shape of its array;
    arrays without a v do not move -> a dict of every array that has a gradient, in float64

    A layer whose result is not a single number needs `dy`: then H is the Hessian of sum(dy y).

    Raises: ValueError for a name, a shape or a dy that does not fit; NoComplexStep if complex arrays do not work.

    Source: Pearlmutter, Fast Exact Multiplication by the Hessian (1994).

    >>> from numpy_attention import Linear
    >>> layer = Linear(2, 1, np.random.default_rng(0), bias=False)
    >>> x, v = np.array([[3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> moved = hvp_layer(layer, {"x": x}, {"w": v}, dy=np.ones((1, 1)))
    >>> moved["x"].tolist()  # dx = dy w^T moves like w
    [[1.0, 0.0]]
    """
    given = split_options(forward_of(layer), options, more)
    return hessian_times(LayerProblem(layer, inputs, given), v, dy)


def hvp(
    op: Callable[..., Any], op_backward: Callable[..., Any], inputs: Inputs, v: Inputs, *, dy: Any = None,
    options: Options | None = None, **more: Any,
) -> ByName:
    """H v for an op and its backward, which are called as in `gradcheck`; v has the form of the inputs.

    Formula: H v = Im dx(x + i h v) / h, for dx = J^T dy

    Raises: ValueError for a name, a shape or a dy that does not fit; NoComplexStep if complex arrays do not work.

    >>> def cube(x): return x**3, x
    >>> def cube_backward(dy, x): return dy * 3 * x * x
    >>> x, v = np.array([1.0, 2.0]), np.array([1.0, 1.0])
    >>> hvp(cube, cube_backward, (x,), (v,), dy=np.ones(2))["x"].tolist()
    [6.0, 12.0]
    """
    return hessian_times(OpProblem(op, op_backward, inputs, split_options(op, options, more)), _by_name(op, v), dy)


def hvp_vjp(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, v: Inputs, *, dy: Any = None,
    options: Options | None = None, **more: Any,
) -> ByName:
    """H v for a plain function `y = f(x, ...)` and its vector-Jacobian product `dx, ... = vjp(dy, x, ...)`.

    Formula: H v = Im vjp(dy, x + i h v) / h

    Raises: ValueError for a name, a shape or a dy that does not fit; NoComplexStep if complex arrays do not work.

    >>> x, v = np.array([3.0, 4.0]), np.array([1.0, 0.0])
    >>> hvp_vjp(lambda x: (x**4).sum(), lambda dy, x: dy * 4 * x**3, (x,), (v,))["x"].round(9).tolist()
    [108.0, 0.0]
    """
    return hessian_times(FunctionProblem(f, vjp, inputs, split_options(f, options, more)), _by_name(f, v), dy)


def hessian_times(problem: Problem, v: Mapping[str, Any], dy: Any = None) -> ByName:
    """H v for a problem; `dy`: one array, or a list for several outputs; by default 1, if the output is one number."""
    if problem.complex:
        raise NoComplexStep(f"hvp {problem.name}: its arrays are complex already, so a complex step is not possible")
    arrays = in_complex(problem.inputs)
    for name, direction in _checked_direction(problem, v).items():
        arrays[name].imag = STEP * direction
    try:
        with complex_numbers(), np.errstate(all="ignore"):
            y, cache = problem.run(arrays)
            grads = problem.pull_back(_cotangent(problem, y, dy), cache)
    except (TypeError, np.exceptions.ComplexWarning) as error:
        raise NoComplexStep(f"hvp {problem.name}: it rejects complex arrays: {error}") from error
    moved = {}
    for name, grad in grads.items():
        if grad is None or not is_float(problem.inputs.get(name)):
            continue
        if np.asarray(grad).dtype.kind != "c":
            raise NoComplexStep(f"hvp {problem.name}: d{name} is real; does the backward use abs or .real?")
        moved[name] = np.imag(grad) / STEP
    return moved


def symmetry(problem: Problem, seed: int = 0) -> float:
    """The difference of u^T H v and v^T H u for random u and v, relative to the terms of both sums and of L.

    Formula: |u^T H v - v^T H u| / sum(|u H v| + |v H u|, |dy y|), for u and v of the size of the arrays

    Near 1e-16 for a right backward. A larger number proves a mistake; a small one proves nothing.

    Raises: NoComplexStep if complex arrays do not work; any error of the function.
    """
    rng = np.random.default_rng([seed, 17])
    y, cache = problem.run(problem.inputs)
    dy = random_cotangent(y, seed)
    known = [name for name, grad in problem.pull_back(dy, cache).items() if grad is not None and name in problem.inputs]
    u, v = ({name: _random_direction(problem.inputs[name], rng) for name in known} for _ in range(2))
    Hu, Hv = hessian_times(problem, u, dy), hessian_times(problem, v, dy)
    uHv = [u[name] * Hv[name] for name in known]
    vHu = [v[name] * Hu[name] for name in known]
    terms = [*uHv, *vHu, *(a * b for a, b in zip(dy, y, strict=True))]
    apart = sum(float(one.sum()) for one in uHv) - sum(float(one.sum()) for one in vHu)
    return abs(apart) / (sum(float(np.abs(one).sum()) for one in terms) or 1.0)


def _random_direction(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A normal direction about as long as x."""
    return rng.standard_normal(x.shape) * (rms(np.asarray(x, np.float64)) or 1.0)


def _cotangent(problem: Problem, y: Outputs, dy: Any) -> Outputs:
    """dy for each output, in the output's dtype."""
    if dy is None:
        if len(y) != 1 or y[0].size != 1:
            shapes = ", ".join(str(one.shape) for one in y)
            fix = "H is the Hessian of the number sum(dy y), so dy sets the weight of each output"
            raise ValueError(f"hvp {problem.name}: dy must be given for an output of shape {shapes}, got None; {fix}")
        return (np.ones_like(y[0]),)
    given = dy if isinstance(dy, (tuple, list)) else (dy,)
    shapes_given, shapes_of_y = [np.shape(one) for one in given], [one.shape for one in y]
    if shapes_given != shapes_of_y:
        expected = f"of the shape of the output, {shapes_of_y}"
        raise ValueError(f"hvp {problem.name}: dy must be {expected}, got {shapes_given}")
    return tuple(np.asarray(one, dtype=of.dtype) for one, of in zip(given, y, strict=True))


def _by_name(f: Callable[..., Any], v: Inputs) -> Mapping[str, Any]:
    """The direction as a dict by argument name."""
    return v if isinstance(v, Mapping) else name_inputs(f, v)[0]


def _checked_direction(problem: Problem, v: Mapping[str, Any]) -> ByName:
    """The direction by names of arrays; refuses a name or a shape that does not fit."""
    known = [name for name in problem.differentiable if name not in problem.without]
    flat: dict[str, Any] = {}
    for argument, tree in v.items():
        flat |= taken_apart(tree, argument)
    checked = {}
    for name, part in flat.items():
        if name not in known:
            raise ValueError(f"hvp {problem.name}: the names in v must be among {', '.join(known)}, got {name!r}")
        checked[name] = np.asarray(part, np.float64)
        if checked[name].shape != problem.inputs[name].shape:
            expected = f"{problem.inputs[name].shape}, the shape of {name}"
            raise ValueError(f"hvp {problem.name}: v[{name!r}] must be {expected}, got {checked[name].shape}")
    return checked
