"""Functions and Modules of PyTorch are checked without changes.

The tests are marked slow, since they need PyTorch, which the tests do not install.
"""

from typing import Any

import numpy as np
import pytest

from numpy_attention.gradcheck import GradientError
from numpy_attention.gradcheck.adapters import check_torch

pytestmark = pytest.mark.slow


@pytest.fixture
def torch() -> Any:
    import torch

    return torch


def power(torch: Any, factor: float = 1.0, forgets: bool = False) -> Any:
    class Power(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, w: Any, n: int = 3) -> Any:
            ctx.save_for_backward(x, w)
            ctx.n = n
            zeros, first = torch.zeros_like(x), x.argmax(-1)
            ctx.mark_non_differentiable(zeros, first)
            return zeros, first, x**n * w

        @staticmethod
        def backward(ctx: Any, dzeros: Any, dfirst: Any, dy: Any) -> Any:
            x, w = ctx.saved_tensors
            dw = (dy * x**ctx.n).sum(0)
            return factor * dy * ctx.n * x ** (ctx.n - 1) * w, None if forgets else dw, None

    return Power


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_function_whose_first_outputs_have_no_gradient(torch: Any, dtype: str) -> None:
    """Outputs without a gradient before an output whose gradient is wrong: the report names it, without a crash.

    Source: https://github.com/pytorch/pytorch/issues/194869
    """
    torch.manual_seed(0)
    x, w = torch.randn(3, 4, dtype=getattr(torch, dtype)), torch.randn(4, dtype=getattr(torch, dtype))
    assert check_torch(power(torch), (x, w)).arguments.keys() == {"x", "w"}
    assert check_torch(power(torch).apply, {"x": x, "w": w.numpy()}, n=2).name == "Power"
    with pytest.raises(GradientError, match="gradcheck Power: dx wrong"):
        check_torch(power(torch, factor=1.001), (x, w))
    with pytest.raises(GradientError, match="gradcheck Power: dw wrong"):
        check_torch(power(torch, forgets=True), (x, w))


def test_only_tensors_that_require_a_gradient_are_checked(torch: Any, rng: np.random.Generator) -> None:
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4)
    report = check_torch(lambda x, w, s: torch.tanh(x * w) * s, (x, w, 0.5))
    assert report.arguments.keys() == {"x"}
    report = check_torch(lambda x, w: torch.tanh(x * w), (x, w.requires_grad_()), no_gradient="x")
    assert report.arguments.keys() == {"w"}


def test_a_module_with_all_its_parameters(torch: Any) -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Dropout(0.4))
    module[0].bias.requires_grad_(False)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    report = check_torch(module, (torch.randn(5, 3),))
    names = {"input", "parameters.0.weight", "parameters.1.weight", "parameters.1.bias"}
    assert report.arguments.keys() == names
    assert report.name == "Sequential"
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())


def test_dropout_is_equal_in_every_call_and_the_global_seed_is_restored(torch: Any) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    assert check_torch(lambda x: torch.nn.functional.dropout(x, 0.5) ** 2, (torch.ones(20) * 0.7,)).ok
    assert torch.equal(torch.rand(1), expected)


def test_complex_tensors_and_trees(torch: Any) -> None:
    torch.manual_seed(0)
    z = torch.randn(4, dtype=torch.complex128)
    report = check_torch(lambda p: {"y": p["z"] ** 3 * p["z"].conj(), "n": 3}, ({"z": z, "ids": torch.arange(3)},))
    assert report.arguments.keys() == {"p.z.real", "p.z.imag"}
