"""Functions of other libraries' arrays, checked without changes: PyTorch's, JAX's, autograd's, CuPy's.

    check_torch(f, inputs)         f: a torch.autograd.Function, a Module, or any function of tensors
    check_jax(f, inputs)           f: a jax.custom_vjp function, or any function of JAX's arrays
    check_autograd(f, inputs)      f: a primitive with its defvjp, or any function of autograd.numpy
    check_cupy(f, vjp, inputs)     a function and its product on CuPy's arrays, as for `gradcheck_vjp`

The gradient under test is the one that the library finds, through the backward that was written for it. Inputs are
arrays of the library or of NumPy, in trees if need be; for every call they are copied there, and outputs and gradients
are copied back. Derivatives are taken in float64, whatever the dtype of the inputs. No library is imported until one of
its functions is checked. All other keywords are those of `gradcheck_vjp`, and the report is the same.
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
from numpy_attention.gradcheck.problem import Arrays, Inputs, is_meant, name_inputs, name_of
from numpy_attention.gradcheck.report import GradientError, Report
from numpy_attention.gradcheck.trees import is_scalar, kind_of, leaves, tree_map

__all__ = ["check_autograd", "check_cupy", "check_jax", "check_torch"]
Pull = Callable[[Callable[[Arrays], Any], Arrays, Any], Mapping[str, Any]]


def check_jax(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check what `jax.vjp` makes of a custom_vjp or any function of JAX's arrays.

    Formula: dL/dx = J^T dy; for complex arrays conj(jax.vjp(conj(dy))), which turns JAX's convention into ours

    64 bits are switched on while the check runs, so that it sees float64 whatever the configuration says; float32
    inputs stay float32 in the backward under test.

    Raises: GradientError, when a gradient is wrong; what `f` raises.
    """
    import jax
    import jax.numpy as jnp

    def here(leaf: Any) -> Any:
        ours = isinstance(leaf, jax.Array) and not jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return np.array(leaf) if ours else leaf

    def there(name: str, leaf: Any) -> Any:
        return jnp.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf

    def pull(g: Callable[[Arrays], Any], arrays: Arrays, dy: Any) -> Arrays:
        y, back = jax.vjp(lambda arrays: [one for one, _ in with_dy(g(arrays), dy)], arrays)
        cotangents = [jnp.conj(jnp.asarray(d)).astype(one.dtype) for one, (_, d) in zip(y, with_dy(dy, dy))]
        (found,) = back(cotangents)
        return {name: jnp.conj(grad) for name, grad in found.items()}

    # it has moved from one to the other
    x64 = jax.enable_x64 if hasattr(jax, "enable_x64") else importlib.import_module("jax.experimental").enable_x64
    return check_there(f, inputs, here, there, pull, lambda: x64(True), no_gradient, options)


def check_autograd(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check what `autograd` makes of a primitive or any function of `autograd.numpy`.

    Formula: dL/dx for L = Re sum(conj(dy) y), by autograd.grad; for complex arrays its conjugate, as for JAX

    Raises: GradientError, when a gradient is wrong; what `f` raises.
    """
    import autograd
    import autograd.numpy as anp

    if hasattr(f, "fun"):  # a primitive does not tell the names of its arguments; what it was made of does
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

    def there(name: str, leaf: Any) -> Any:
        return leaf

    return check_there(f, inputs, lambda leaf: leaf, there, pull, contextlib.nullcontext, no_gradient, options)


def check_cupy(
    f: Callable[..., Any], vjp: Callable[..., Any], inputs: Inputs, *, backend: NumPyBackend | None = None,
    **options: Any,
) -> Report:
    """`gradcheck_vjp` for a function and its product on CuPy's arrays; they are moved to the GPU and back.

    Formula: vjp(dy, x) = J^T dy

    Raises: GradientError, when a gradient is wrong; BackendError where there is no GPU; what `f` raises.
    """
    gpu = backend or get_backend("cupy")
    named, _ = name_inputs(f, inputs)

    def there(value: Any) -> Any:
        return tree_map(lambda _, leaf: gpu.asarray(leaf) if isinstance(leaf, np.ndarray) else leaf, value)

    def here(value: Any) -> Any:
        return tree_map(lambda _, leaf: gpu.to_host(leaf) if hasattr(leaf, "dtype") else leaf, value)

    @functools.wraps(f)
    def run(*args: Any, **more: Any) -> Any:
        return here(f(*there(args), **there(more)))

    def pull_back(dy: Any, *args: Any, **more: Any) -> Any:
        return here(vjp(there(dy), *there(args), **there(more)))

    hosts = {name: here(value) for name, value in named.items()}
    return gradcheck_vjp(run, pull_back, hosts if isinstance(inputs, Mapping) else tuple(hosts.values()), **options)


def check_torch(f: Any, inputs: Inputs, *, no_gradient: Sequence[str] = (), **options: Any) -> Report:
    """Check what `torch.autograd` makes of a Function, a Module or any function of tensors.

    Formula: dL/dx = J^T dy; for complex tensors in PyTorch's convention, which is that of this package

    Every tensor of floats is checked; or, if one of them requires a gradient, only those that do. A Module is checked
    for the parameters that require one too. Where a backward gives None the gradient is taken for zero. Each call
    begins from the same seed, so that dropout drops the same.

    Raises: GradientError, when a gradient is wrong; what `f` raises.
    """
    import torch

    held: Arrays = {}
    if isinstance(f, torch.nn.Module):
        every = {"parameters": dict(f.named_parameters()), "buffers": dict(f.named_buffers())}
        held = {name: tensors for name, tensors in every.items() if tensors}
        inputs = {**name_inputs(f.forward, inputs)[0], **held}
        f = _of_torch_module(f)
    elif owner := _class_of_torch_function(f):
        f = _of_torch_function(owner)
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

    def here(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.dtype is torch.bfloat16:
            raise TypeError(f"gradcheck {name_of(f)}: NumPy has no bfloat16; convert the tensor: .float()")
        return leaf.detach().resolve_conj().resolve_neg().cpu().numpy().copy()

    def there(name: str, leaf: Any) -> Any:
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

    return check_there(f, inputs, here, there, pull, around, [*names_of(no_gradient), *fixed], options)


def _class_of_torch_function(f: Any) -> Any:
    """The torch.autograd.Function that f is, or whose `apply` it is."""
    import torch

    owner = getattr(f, "__self__", None) if getattr(f, "__name__", "") == "apply" else f
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def _of_torch_function(function: Any) -> Callable[..., Any]:
    """`Function.apply` with the signature of its forward, so that arguments and gradients have names."""
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

    def call(*inputs: Any, parameters: Any = None, buffers: Any = None, **more: Any) -> Any:
        return torch.func.functional_call(module, {**(parameters or {}), **(buffers or {})}, inputs, more)

    call.__name__ = type(module).__name__
    return call


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
