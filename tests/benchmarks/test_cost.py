"""How cost grows, by counting: bytes asked for and products made do not depend on how busy the machine is."""

import sys
import tracemalloc
from collections import Counter
from typing import ClassVar

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.runs.parallel import Workers, loss_and_gradients
from tests.benchmarks.work import model_and_batches

H, D_K = 2, 16


def peak_bytes(T: int, tiled: bool) -> int:
    """The most that forward and backward hold beyond their inputs."""
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


def test_memory_of_tiled_attention_grows_with_T_and_that_of_attention_with_its_square() -> None:
    assert peak_bytes(4096, tiled=True) < 2.1 * peak_bytes(2048, tiled=True)
    assert peak_bytes(2048, tiled=False) > 3.5 * peak_bytes(1024, tiled=False)
    assert peak_bytes(2048, tiled=True) < 0.1 * peak_bytes(2048, tiled=False)


class Counting(np.ndarray):
    """An array that counts what NumPy is asked to do with it, and with all that comes of it."""

    __cuda_array_interface__ = None  # so it is taken for an array that computes elsewhere
    counts: ClassVar[Counter[str]] = Counter()

    def __array_ufunc__(self, ufunc, method, *inputs, out=(), **options):
        self.counts["operations"] += 1
        self.counts["new arrays"] += not out
        # not the sums over rows, ones @ dy, nor the means, dy @ a column
        if ufunc is np.matmul and min(i.ndim for i in inputs) > 1 and inputs[1].shape[-1] > 1:
            self.counts["products"] += 1
        plain = [i.view(np.ndarray) if isinstance(i, Counting) else i for i in inputs]
        if out:
            options["out"] = tuple(o.view(np.ndarray) if isinstance(o, Counting) else o for o in out)
        result = getattr(ufunc, method)(*plain, **options)
        return out[0] if out else (result.view(Counting) if isinstance(result, np.ndarray) else result)


def counted(model: na.GPT, ids: np.ndarray, targets: np.ndarray) -> Counter[str]:
    """What forward and backward ask of NumPy."""
    model.replace_parameters(lambda _, p: p.view(Counting))
    Counting.counts = Counter()
    with Workers(1) as workers:
        loss_and_gradients(model, (ids, targets), 1, workers, [None])
    return Counting.counts


@pytest.mark.parametrize("layers", [1, 3])
def test_a_step_makes_three_products_for_each_of_its_forward(layers: int) -> None:
    """A product added by mistake would double a model's largest cost."""
    model = na.GPT(na.GPTConfig(11, 5, 8, 2, layers), np.random.default_rng(0))
    ids, targets = np.random.default_rng(1).integers(0, 11, (2, 3, 5))
    # q, k, v, o, two of the feed-forward net, scores and weighted values in every layer; the logits once
    assert counted(model, ids, targets)["products"] == 3 * (8 * layers + 1)


# Of forward and backward of one shard of nano, 8 texts of 64 tokens. Small models pay for each of these, and two
# threads pay twice, since Python runs one of them at a time. Whoever makes them fewer sets them lower.
BUDGET = {"Python calls": 1960, "operations": 255, "new arrays": 141, "peak bytes": 8_020_000}


def test_a_step_of_nano_keeps_its_budget() -> None:
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
