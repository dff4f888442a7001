"""Check functions of PyTorch, JAX, autograd or CuPy without changes to the functions.

    check_torch(f, inputs)         f: a torch.autograd.Function, a Module, or any function of tensors
    check_jax(f, inputs)           f: a jax.custom_vjp function, or any function of JAX's arrays
    check_autograd(f, inputs)      f: a primitive with its defvjp, or any function of autograd.numpy
    check_cupy(f, vjp, inputs)     a function and its vector-Jacobian product on CuPy's arrays, as for `gradcheck_vjp`

The library computes the gradient under test, through the backward that was written for f. Inputs are arrays of the
library or of NumPy, or trees of arrays. Every call copies them to the library, and copies outputs and gradients back.
Derivatives are computed in float64, for every dtype of the inputs. A library is imported only when one of its functions
is checked. All other keywords are passed to `gradcheck_vjp`, and the report has the same form.
"""

import contextlib
import functools
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.backend import NumPyBackend, get_backend
from numpy_attention.gradcheck.check import gradcheck_vjp
from numpy_attention.gradcheck.problem import Arrays, Inputs, is_meant, name_inputs
from numpy_attention.gradcheck.report import Report
from numpy_attention.gradcheck.trees import is_scalar, kind_of, leaves, tree_map

__all__ = ["check_autograd", "check_cupy", "check_jax", "check_torch"]
Pull = Callable[[Callable[[Arrays], Any], Arrays, Any], Mapping[str, Any]]


def check_jax(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check the gradient that `jax.vjp` computes for a custom_vjp or any other function of JAX's arrays.

    Formula: dL/dx = J^T dy; for complex arrays conj(jax.vjp(conj(dy))), which converts JAX's convention to ours

    The check switches on 64-bit numbers while it runs, so it can compute in float64 with any configuration. In the
    backward under test, float32 inputs stay float32.

    Raises: GradientError, when a gradient is wrong; any error of `f`.
    """
    import jax
    import jax.numpy as jnp

    def to_numpy(leaf: Any) -> Any:
        ours = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.array(leaf) if ours else leaf

    def to_library(name: str, leaf: Any) -> Any:
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    def pull(g: Callable[[Arrays], Any], arrays: Arrays, dy: Any) -> Arrays:
        y, back = jax.vjp(lambda arrays: [one for one, _ in with_dy(g(arrays), dy)], arrays)
        cotangents = [jnp.conj(jnp.asarray(d)).astype(one.dtype) for one, (_, d) in zip(y, with_dy(dy, dy))]
        (found,) = back(cotangents)
        return {name: jnp.conj(grad) for name, grad in found.items()}

    # JAX has moved enable_x64 from jax.experimental to jax.
    x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental").enable_x64
    return check_library(f, inputs, to_numpy, to_library, pull, lambda: x64(True), no_gradient, options)


def check_autograd(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check the gradient that `autograd` computes for a primitive or any other function of `autograd.numpy`.

    Formula: dL/dx for L = Re sum(conj(dy) y), by autograd.grad; for complex arrays the conjugate of this, as for JAX

    Raises: GradientError, when a gradient is wrong; any error of `f`.
    """
    import autograd
    import autograd.numpy as anp

    if hasattr(f, "fun"):  # a primitive has no signature; the function inside it has one
        f = functools.wraps(f.fun)(functools.partial(f))

    def pull(g: Callable[[Arrays], Any], arrays: Arrays, dy: Any) -> Arrays:
        def loss(*values: Any) -> Any:
            total = 0.0
            for one, d in with_dy(g(dict(zip(arrays, values))), dy):
                product = anp.conj(d) * one
                total = total + anp.sum(anp.real(product) if kind_of(one) == "c" or kind_of(d) == "c" else product)
            return total

        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Output seems independent of input")
            found = autograd.grad(loss, tuple(range(len(arrays))))(*arrays.values())
        return {name: np.conj(grad) for name, grad in zip(arrays, found)}

    return check_library(
        f, inputs, lambda leaf: leaf, lambda name, leaf: leaf, pull, contextlib.nullcontext, no_gradient, options
    )


def check_cupy(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *, backend: NumPyBackend | None = None,
    **options: Any,
) -> Report:
    """`gradcheck_vjp` for a function and its vjp on CuPy's arrays; inputs are copied to the GPU, results back.

    Formula: vjp(dy, x) = J^T dy

    Raises: GradientError, when a gradient is wrong; BackendError without a GPU; any error of `f`.
    """
    gpu = backend or get_backend("cupy")
    named, _ = name_inputs(f, inputs)
    to_library = functools.partial(tree_map, lambda _, x: gpu.asarray(x) if isinstance(x, np.ndarray) else x)
    to_numpy = functools.partial(tree_map, lambda _, x: gpu.to_host(x) if hasattr(x, "dtype") else x)

    @functools.wraps(f)
    def run(*args: Any, **more: Any) -> Any:
        return to_numpy(f(*to_library(args), **to_library(more)))

    def pull_back(dy: Any, *args: Any, **more: Any) -> Any:
        return to_numpy(vjp(to_library(dy), *to_library(args), **to_library(more)))

    on_host = {name: to_numpy(value) for name, value in named.items()}
    copies: Inputs = on_host if isinstance(inputs, Mapping) else tuple(on_host.values())
    return gradcheck_vjp(run, pull_back, copies, **options)


def check_torch(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check the gradient that `torch.autograd` computes for a Function, a Module or any function of tensors.

    Formula: dL/dx = J^T dy; for complex tensors in PyTorch's convention, which is also ours

    If some tensors require a gradient, only these tensors are checked; otherwise all tensors of floats are checked. For
    a Module, the parameters that require a gradient are checked too. If a backward returns None, the gradient counts as
    zero. Each call starts from the same seed, so dropout always drops the same elements.

    Raises: GradientError, when a gradient is wrong; any error of `f`.
    """
    import torch

    held: Arrays = {}
    function = getattr(f, "__self__", None) if getattr(f, "__name__", "") == "apply" else f
    if isinstance(f, torch.nn.Module):
        held = {"parameters": dict(f.named_parameters()), "buffers": dict(f.named_buffers())}
        inputs = {**name_inputs(f.forward, inputs)[0], **held}
        f = _of_torch_module(f)
    elif isinstance(function, type) and issubclass(function, torch.autograd.Function):  # f is a Function or its `apply`
        f = _of_torch_function(function)
    named, _ = name_inputs(f, inputs)
    tensors = {name: leaf for name, leaf in leaves_of(named) if isinstance(leaf, torch.Tensor)}
    of_module = {name for name, _ in leaves_of(held)}
    chosen = any(one.requires_grad for name, one in tensors.items() if name not in of_module)
    fixed = [
        name for name, one in tensors.items()
        if not one.requires_grad and (name in of_module or (chosen and one.is_floating_point()))
    ]
    fixed += [name for name, leaf in leaves_of(named) if kind_of(leaf) and is_scalar(leaf)]
    cards = sorted({one.device.index or 0 for one in tensors.values() if one.is_cuda})

    def to_numpy(leaf: Any) -> Any:
        plain = isinstance(leaf, torch.Tensor)
        return leaf.detach().resolve_conj().resolve_neg().cpu().numpy().copy() if plain else leaf

    def to_library(name: str, leaf: Any) -> Any:
        device = tensors[name].device if name in tensors else "cpu"
        return torch.tensor(leaf, device=device) if isinstance(leaf, np.ndarray) else leaf

    def pull(g: Callable[[Arrays], Any], arrays: Arrays, dy: Any) -> Arrays:
        moved = {name: array.requires_grad_() for name, array in arrays.items()}
        with torch.enable_grad():
            y = g(moved)
        pairs = [(one, d) for one, d in with_dy(y, dy) if one.requires_grad]
        if not pairs:
            return {name: torch.zeros_like(one) for name, one in moved.items()}
        cotangents = [torch.tensor(d, device=one.device) for one, d in pairs]
        found = torch.autograd.grad([one for one, _ in pairs], list(moved.values()), cotangents, allow_unused=True)
        return {name: torch.zeros_like(moved[name]) if grad is None else grad for name, grad in zip(moved, found)}

    @contextlib.contextmanager
    def around() -> Iterator[None]:
        with torch.random.fork_rng(devices=cards), torch.no_grad():
            torch.manual_seed(0)
            yield

    return check_library(f, inputs, to_numpy, to_library, pull, around, [*names_of(no_gradient), *fixed], options)


def _of_torch_function(function: Any) -> Callable[..., Any]:
    """`Function.apply` with the signature of its forward, which gives names to arguments and gradients."""
    import torch

    parameters = list(inspect.signature(function.forward).parameters.values())
    if function.setup_context is torch.autograd.Function.setup_context:
        parameters = parameters[1:]  # ctx
    signature = inspect.Signature(parameters)

    def apply(*inputs: Any, **options: Any) -> Any:
        bound = signature.bind(*inputs, **options)
        bound.apply_defaults()
        return function.apply(*bound.args)

    apply.__name__, vars(apply)["__signature__"] = function.__name__, signature
    return apply


def _of_torch_module(module: Any) -> Callable[..., Any]:
    """A Module as a function of its inputs, its parameters and its buffers."""
    import torch

    def call(*inputs: Any, parameters: Any, buffers: Any, **more: Any) -> Any:
        return torch.func.functional_call(module, {**parameters, **buffers}, inputs, more)

    call.__name__ = type(module).__name__
    return call


def check_library(
    f: Any, inputs: Inputs, to_numpy: Callable[[Any], Any], to_library: Callable[[str, Any], Any], pull: Pull,
    around: Callable[[], Any], no_gradient: Sequence[str], options: Mapping[str, Any],
) -> Report:
    """`gradcheck_vjp` of f, called on arrays of its library.

    `to_library` makes these arrays and `to_numpy` copies them back. `pull(g, arrays, dy)` differentiates g at the
    arrays. All calls run inside `around()`.
    """
    named, in_order = name_inputs(f, inputs)
    without = names_of(no_gradient)
    with around():
        on_host = {name: tree_map(lambda _, leaf: to_numpy(leaf), value) for name, value in named.items()}

    def call(given: Arrays, moved: Arrays) -> Any:
        def converted(name: str, leaf: Any) -> Any:
            return moved[name] if name in moved else to_library(name, leaf)

        ready = given | {argument: tree_map(converted, given[argument], argument) for argument in named}
        positional = [ready.pop(name) for name in in_order]
        return f(*positional, **ready)

    @functools.wraps(f)
    def run(*args: Any, **more: Any) -> Any:
        with around():
            return tree_map(lambda _, leaf: to_numpy(leaf), call(dict(zip(in_order, args)) | more, {}))

    def vjp(dy: Any, *args: Any, **more: Any) -> dict[str, Any]:
        given = dict(zip(in_order, args)) | more
        differentiated = {
            name: leaf for argument in named for name, leaf in leaves(given[argument], argument)
            if kind_of(leaf) and not any(is_meant(name, one) for one in without)
        }
        with around():
            moved = {name: to_library(name, leaf) for name, leaf in differentiated.items()}
            found = pull(lambda arrays: call(given, arrays), moved, dy)
            grads = {name: to_numpy(grad) for name, grad in found.items()}
        return {argument: tree_map(lambda name, _: grads.get(name), given[argument], argument) for argument in named}

    copies: Inputs = on_host if isinstance(inputs, Mapping) else tuple(on_host.values())
    return gradcheck_vjp(run, vjp, copies, no_gradient=without, **options)


def with_dy(y: Any, dy: Any) -> list[tuple[Any, Any]]:
    """Pairs of an output and its dy, without the outputs that have no dy."""
    return [(one, d) for (_, one), (_, d) in zip(leaves(y), leaves(dy), strict=True) if d is not None]


def names_of(no_gradient: Sequence[str]) -> list[str]:
    """The names as a list; the argument may also be a single name."""
    return [no_gradient] if isinstance(no_gradient, str) else list(no_gradient)


def leaves_of(named: Arrays) -> list[tuple[str, Any]]:
    """The name and the value of every leaf of all arguments."""
    return [pair for argument, value in named.items() for pair in leaves(value, argument)]
