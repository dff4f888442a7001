"""PyTorch's functions, checked as they are; see `adapters`."""

import contextlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from numpy_attention.gradcheck.bridge import check_there, leaves_of, names_of, with_dy
from numpy_attention.gradcheck.problems.options import name_of
from numpy_attention.gradcheck.problems.problem import Arrays, Inputs, name_inputs
from numpy_attention.gradcheck.problems.trees import is_scalar, kind_of
from numpy_attention.gradcheck.report import Report


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
        f = _of_module(f)
    elif owner := _function_class(f):
        f = _of_function(owner)
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


def _function_class(f: Any) -> Any:
    """The torch.autograd.Function that f is, or whose `apply` it is."""
    import torch

    owner = getattr(f, "__self__", None) if getattr(f, "__name__", "") == "apply" else f
    return owner if isinstance(owner, type) and issubclass(owner, torch.autograd.Function) else None


def _of_function(function: Any) -> Callable[..., Any]:
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


def _of_module(module: Any) -> Callable[..., Any]:
    """A Module as a function of its inputs, its parameters and its buffers."""
    import torch

    def call(*inputs: Any, parameters: Any = None, buffers: Any = None, **more: Any) -> Any:
        return torch.func.functional_call(module, {**(parameters or {}), **(buffers or {})}, inputs, more)

    call.__name__ = type(module).__name__
    return call
