"""The ops that PyTorch has too: equal results, and equal gradients by its autograd, for every case of the catalogue."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.gradcheck.problem import random_cotangent
from numpy_attention.tutor.catalogue import CATALOGUE
from tests.tutor.plain import PLAIN

WITHOUT_TORCH = {"sink", "softcap", "dropout"}  # arguments and options that PyTorch's functions do not have


def attention(F: Any, q: Any, k: Any, v: Any, mask: Any = None, bias: Any = 0.0, scale: float | None = None) -> Any:
    """Written out, so that a query without visible keys gets zeros as here."""
    if k.ndim > 2:
        k, v = (x.repeat_interleave(q.shape[-3] // k.shape[-3], dim=-3) for x in (k, v))
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale) + bias
    if mask is None:
        return F.softmax(scores, -1) @ v
    seen = mask.any(-1, keepdim=True)
    return F.softmax(scores.masked_fill(~mask & seen, float("-inf")), -1) * seen @ v


def cross_entropy(F: Any, logits: Any, targets: Any, reduction: str = "mean", **options: Any) -> Any:
    loss = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction=reduction, **options)
    return loss.reshape(targets.shape) if reduction == "none" else loss


TORCH: dict[str, Callable[..., Any]] = {
    "linear": lambda F, x, w, b=None: F.linear(x, w.T, b),
    "embedding": lambda F, ids, table: F.embedding(ids, table),
    "softmax": lambda F, x, axis=-1: F.softmax(x, axis),
    "log_softmax": lambda F, x, axis=-1: F.log_softmax(x, axis),
    "scaled_dot_product_attention": attention,
    "layer_norm": lambda F, x, gamma, beta, eps=1e-5: F.layer_norm(x, gamma.shape, gamma, beta, eps),
    "rms_norm": lambda F, x, gamma, eps=1e-6: F.rms_norm(x, gamma.shape, gamma, eps),
    "relu": lambda F, x: F.relu(x),
    "gelu": lambda F, x, approximate="tanh": F.gelu(x, approximate=approximate),
    "silu": lambda F, x, alpha=1.0: x * (alpha * x).sigmoid(),
    "cross_entropy": cross_entropy,
}
NAMES = [name for name, entry in CATALOGUE.items() if entry.covers in TORCH and not {"nothing counts", "one place"} &
         {name.partition(": ")[2]} and not WITHOUT_TORCH & {*entry.case().inputs, *entry.case().options}]


def test_every_op_is_compared_with_pytorch_or_a_plain_form() -> None:
    public = {name.removesuffix("_backward") for name in dir(na) if name.endswith("_backward")}
    assert public <= set(TORCH) | set(PLAIN)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_results_and_gradients_are_those_of_pytorch(name: str) -> None:
    torch = pytest.importorskip("torch")
    case = CATALOGUE[name].case(3, np.float64)
    y, cache = case.op(**case.inputs, **case.options)
    dy = random_cotangent((y,), 3)[0]
    found = case.op_backward(dy, cache)

    inputs = {argument: torch.from_numpy(np.array(x)) for argument, x in case.inputs.items()}
    floats = [x.requires_grad_() for x in inputs.values() if x.is_floating_point()]
    options = dict(case.options)
    if "class_weights" in options:
        options["weight"] = torch.from_numpy(options.pop("class_weights"))
    theirs = TORCH[CATALOGUE[name].covers](torch.nn.functional, **inputs, **options)
    np.testing.assert_allclose(y, theirs.detach().numpy(), rtol=1e-9, atol=1e-12)
    gradients = torch.autograd.grad(theirs, floats, torch.from_numpy(np.asarray(dy)))
    ours = [grad for grad in (found if isinstance(found, tuple) else (found,)) if grad is not None]
    for grad, expected in zip(ours, gradients, strict=True):
        np.testing.assert_allclose(grad, expected.numpy(), rtol=1e-9, atol=1e-12)
