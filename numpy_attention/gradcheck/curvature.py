"""Second derivatives without extra code: the complex step of a hand-written backward

A backward is a function too: it computes dx = J^T dy, the gradient of L = sum(dy y). Its derivative is the second
derivative of L, and a complex step computes it in the same way as the first derivative (`complex_step.py`):

    dx(x + i h v) = dx(x) + i h H v - h^2 (...)        so        H v = Im dx(x + i h v) / h

where H is the Hessian, the matrix of second derivatives. H is never built: for n parameters it has n^2 elements. One
run of forward and backward on complex arrays gives H v to the last digits, for all parameters of a model at once.
Second-order optimizers need H v of the loss, and the largest eigenvalue of H limits the learning rate.

Source: Pearlmutter, Fast Exact Multiplication by the Hessian (1994), derives H v for each layer by hand;
Squire, Trapp, Using Complex Variables to Estimate Derivatives of Real Functions (1998), introduce the complex step.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from numpy_attention.gradcheck.derivative import H as STEP
from numpy_attention.gradcheck.derivative import NoComplexStep, complex_numbers, in_complex
from numpy_attention.gradcheck.problem import (
    FunctionProblem,
    Inputs,
    LayerProblem,
    OpProblem,
    Options,
    Outputs,
    Problem,
    by_leaf,
    forward_of,
    is_float,
    split_options,
)

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

    >>> from numpy_attention import Linear
    >>> layer = Linear(2, 1, np.random.default_rng(0), bias=False)
    >>> x, v = np.array([[3.0, 4.0]]), np.array([[1.0], [0.0]])
    >>> moved = hvp_layer(layer, {"x": x}, {"w": v}, dy=np.ones((1, 1)))
    >>> moved["x"].tolist()  # dx = dy w^T moves like w
    [[1.0, 0.0]]
    """
    return hessian_times(LayerProblem(layer, inputs, split_options(forward_of(layer), options, more)), v, dy)


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
    return hessian_times(OpProblem(op, op_backward, inputs, split_options(op, options, more)), v, dy)


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
    return hessian_times(FunctionProblem(f, vjp, inputs, split_options(f, options, more)), v, dy)


def hessian_times(problem: Problem, v: Inputs, dy: Any = None) -> ByName:
    """H v for a problem; `dy`: one array, or a list for several outputs; by default 1, if the output is one number."""
    if problem.complex:
        raise NoComplexStep(f"hvp {problem.name}: its arrays are complex already, so a complex step is not possible")
    arrays = in_complex(problem.inputs)
    for name, direction in by_leaf(problem, "v", v, float).items():
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
