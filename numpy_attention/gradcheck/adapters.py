"""Functions of other libraries' arrays, checked as they are: PyTorch's, JAX's, autograd's, CuPy's.

    check_torch(f, inputs)         f: a torch.autograd.Function, a Module, or any function of tensors
    check_jax(f, inputs)           f: a jax.custom_vjp function, or any function of JAX's arrays
    check_autograd(f, inputs)      f: a primitive with its defvjp, or any function of autograd.numpy
    check_cupy(f, vjp, inputs)     a function and its product on CuPy's arrays, as for `gradcheck_vjp`

The gradient under test is the one that the library finds, through the backward that was written for it. Inputs are
arrays of the library or of NumPy, in trees if need be; for every call they are copied there, and outputs and gradients
are copied back. The witnesses move float64, whatever the dtype of the inputs. No library is imported until one of its
functions is checked. All other keywords are those of `gradcheck_vjp`, and the report is the same.
"""

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from numpy_attention.backend import NumPyBackend, get_backend
from numpy_attention.gradcheck.bridge import check_there, with_dy
from numpy_attention.gradcheck.check import gradcheck_vjp
from numpy_attention.gradcheck.problems.problem import Arrays, Inputs, name_inputs
from numpy_attention.gradcheck.problems.trees import kind_of, tree_map
from numpy_attention.gradcheck.report import Report
from numpy_attention.gradcheck.torch_adapter import check_torch

__all__ = ["check_autograd", "check_cupy", "check_jax", "check_torch"]


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
