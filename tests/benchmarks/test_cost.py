"""How cost grows: these tests count bytes and operations, which do not depend on other work of the machine."""

import sys
import tracemalloc
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.training.parallel import Workers, loss_and_gradients
from tests.benchmarks.work import model_and_batches

H, D_K = 2, 16


def peak_bytes(T: int, tiled: bool) -> int:
    """The peak memory of forward and backward without their inputs, in bytes."""
    q, k, v, dy = np.random.default_rng(T).standard_normal((4, H, T, D_K), np.float32)
    mask = na.causal_mask(T)
    tracemalloc.start()
    if tiled:
        _, cache = na.tiled_attention(q, k, v, causal=True, block_size=128)
        na.tiled_attention_backward(dy, cache)
    else:
        _, dense_cache = na.scaled_dot_product_attention(q, k, v, mask=mask)
        na.scaled_dot_product_attention_backward(dy, dense_cache)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def test_tiled_attention_needs_memory_linear_in_T_and_plain_attention_quadratic() -> None:
    assert peak_bytes(4096, tiled=True) < 2.1 * peak_bytes(2048, tiled=True)
    assert peak_bytes(2048, tiled=False) > 3.5 * peak_bytes(1024, tiled=False)
    assert peak_bytes(2048, tiled=True) < 0.1 * peak_bytes(2048, tiled=False)


class Counting(np.ndarray):
    """An array that counts the NumPy operations on it, and on the results of these operations."""

    __cuda_array_interface__ = None  # so our code treats it as an array of another library
    counts: ClassVar[Counter[str]] = Counter()

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        self.counts["operations"] += 1
        self.counts["new arrays"] += not out
        # sums over rows, ones @ dy, and means, dy @ a column, do not count
        if ufunc is np.matmul and min(i.ndim for i in inputs) > 1 and inputs[1].shape[-1] > 1:
            self.counts["products"] += 1
        plain = [i.view(np.ndarray) if isinstance(i, Counting) else i for i in inputs]
        if out:
            options["out"] = tuple(o.view(np.ndarray) if isinstance(o, Counting) else o for o in out)
        result = getattr(ufunc, method)(*plain, **options)
        return out[0] if out else (result.view(Counting) if isinstance(result, np.ndarray) else result)


def counted(model: na.GPT, ids: np.ndarray, targets: np.ndarray) -> Counter[str]:
    """The counts of forward and backward."""
    model.replace_parameters(lambda _, p: p.view(Counting))
    Counting.counts = Counter()
    with Workers(1) as workers:
        loss_and_gradients(model, (ids, targets), 1, workers, [None])
    return Counting.counts


@pytest.mark.parametrize("layers", [1, 3])
def test_step_has_three_products_for_each_product_of_the_forward(layers: int) -> None:
    """A product added by mistake would double a model's largest cost."""
    model = na.GPT(na.GPTConfig(11, 5, 8, 2, layers), np.random.default_rng(0))
    ids, targets = np.random.default_rng(1).integers(0, 11, (2, 3, 5))
    # each layer: q, k, v, o, two of the feed-forward net, scores, weighted values; once: the logits
    assert counted(model, ids, targets)["products"] == 3 * (8 * layers + 1)


# Counts for forward and backward of one shard of nano, 8 texts of 64 tokens. In small models each of them costs time,
# and with two threads twice as much, since Python runs only one thread at a time. If your change reduces a count, set
# the smaller number here.
BUDGET = {"Python calls": 1960, "operations": 255, "new arrays": 141, "peak bytes": 8_020_000}


def test_step_of_nano_keeps_its_budget() -> None:
    model, [batch, *_] = model_and_batches("nano")
    ids, targets = (array[:8] for array in batch)
    calls: Counter[str] = Counter()

    def count(frame, event, argument):
        calls["Python calls"] += event in ("call", "c_call")

    def step() -> None:
        _, cache = model.loss(ids, targets)
        model.backward(cache)

    step()
    sys.setprofile(count)
    step()
    sys.setprofile(None)
    tracemalloc.start()
    step()
    calls["peak bytes"] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    calls |= counted(model, ids, targets)
    spent = {what: calls[what] for what in BUDGET}
    assert all(0.8 * BUDGET[what] < spent[what] <= 1.1 * BUDGET[what] for what in BUDGET), spent
