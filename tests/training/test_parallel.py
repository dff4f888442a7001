"""A batch in shards gives the same result as the whole batch."""

import threading

import numpy as np
import pytest

from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.ops.c12a_tiles import Pairs
from numpy_attention.threads import share
from numpy_attention.training.c28_loop import shards
from numpy_attention.training.c30_parallel import WORTH_THREADS, Workers, default_workers, loss_and_gradients, mean_loss


@pytest.fixture
def model(rng):
    return GPT(GPTConfig(vocab_size=11, context_length=7, d_model=12, num_heads=3, num_layers=2), rng, np.float64)


@pytest.fixture
def batch(rng):
    ids = rng.integers(0, 11, size=(5, 7))
    targets = rng.integers(0, 11, size=(5, 7))
    for row, padding in enumerate((0, 3, 6, 1, 7)):  # the last example counts for nothing
        targets[row, 7 - padding :] = -100
    return ids, targets


@pytest.mark.parametrize("workers", [1, 2, 3])
@pytest.mark.parametrize("count", [1, 2, 3, 5, 9])
def test_shards_with_different_token_counts_sum_to_the_whole_batch(model, batch, workers, count):
    loss, cache = model.loss(*batch)
    grads = model.backward(cache)
    with Workers(workers) as pool:
        sharded, sharded_grads = loss_and_gradients(model, batch, count, pool, [None] * count)
        assert sharded == pytest.approx(float(loss), rel=1e-13)
        assert mean_loss(model, shards(batch, count), pool) == pytest.approx(float(loss), rel=1e-13)
    assert sharded_grads.keys() == grads.keys()
    for name, g in grads.items():
        np.testing.assert_allclose(sharded_grads[name], g, rtol=0, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=name)


def test_sum_does_not_depend_on_the_order_of_threads(model, batch):
    class Slow:
        """Delays the first shard until the second shard has its gradients."""

        def __init__(self, held):
            self.held, self.done = held, threading.Event()

        def loss(self, ids, targets, training, rng):
            if len(ids) == 3 and self.held:
                self.done.wait(5)
            return model.loss(ids, targets)

        def parameters(self):
            return model.parameters()

        def backward(self, cache, dloss):
            grads = model.backward(cache, dloss)
            self.done.set()
            return grads

    with Workers(2) as pool:
        results = [loss_and_gradients(Slow(held), batch, 2, pool, [None, None]) for held in (False, True)]
    assert results[0][0] == results[1][0]
    for name, g in results[0][1].items():
        np.testing.assert_array_equal(g, results[1][1][name])


class Failing:
    """A model whose backward fails for one shard; a shard is one id."""

    def __init__(self, failing):
        self.failing = failing

    def loss(self, ids, targets, training, rng):
        return np.float32(1.0), ids.item()

    def backward(self, shard, dloss):
        if shard == self.failing:
            raise FloatingPointError(f"shard {shard}")
        return {"w": np.ones(2)}


@pytest.mark.parametrize("failing", range(3))
def test_error_of_a_shard_is_the_error_of_the_step(failing):
    numbers = np.arange(3)[:, None], np.zeros((3, 1), int)
    with Workers(3) as pool, pytest.raises(FloatingPointError, match=f"shard {failing}"):
        loss_and_gradients(Failing(failing), numbers, 3, pool, [None] * 3)


def test_short_step_uses_one_thread(monkeypatch):
    assert default_workers(20, WORTH_THREADS, cores=2) == 2
    assert default_workers(20, WORTH_THREADS - 1, cores=2) == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setattr("numpy_attention.training.c30_parallel.controller", lambda: None)
    assert default_workers(20, 10**9, cores=2) == 1  # BLAS cannot be limited to one thread


def test_batch_of_one_text_divides_its_heads(monkeypatch):
    model = GPT(GPTConfig(11, 64, 8, 4, 2, attention="tiled"), np.random.default_rng(1))
    ids = np.random.default_rng(2).integers(0, 11, (1, 65))
    seen, forward = set(), Pairs.forward

    def noted(self, *arguments):
        seen.add(threading.get_ident())
        return forward(self, *arguments)

    monkeypatch.setattr(Pairs, "forward", noted)
    monkeypatch.setattr("numpy_attention.ops.c12a_tiles.FEW_SCORES", 0)
    results = []
    for count in (1, 2, 3):
        seen.clear()
        with Workers(count) as pool:
            loss, grads = loss_and_gradients(model, (ids[:, :-1], ids[:, 1:]), count, pool, [None] * count)
            results.append([loss, *grads.values()])
            assert (threading.get_ident() in seen) == (count == 1), "the heads are for those who were lent"
            seen.clear()
            assert mean_loss(model, [(ids[:, :-1], ids[:, 1:])] * 2, pool) == pytest.approx(float(loss), rel=1e-6)
            assert (threading.get_ident() in seen) == (count == 1)
    for others in results[1:]:
        for ours, theirs in zip(results[0], others, strict=True):
            np.testing.assert_array_equal(ours, theirs)


def blas_threads():
    info = pytest.importorskip("threadpoolctl").threadpool_info()
    return {one["num_threads"] for one in info if one["user_api"] == "blas"}


@pytest.fixture
def no_limits(monkeypatch):
    """The environment asks for no number of threads; BLAS uses three threads outside the tested contexts."""
    threadpoolctl = pytest.importorskip("threadpoolctl")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with threadpoolctl.threadpool_limits(3, user_api="blas"):
        yield monkeypatch


def test_blas_uses_one_thread_while_heads_are_divided_and_all_otherwise(no_limits):
    before, within = blas_threads(), []
    with Workers(2) as pool:
        with pool.lent():
            assert blas_threads() == {2}
            share(lambda _: within.append(blas_threads()), range(2))
            assert blas_threads() == {2}
        assert blas_threads() == {1}
    assert within == [{1}, {1}]
    assert blas_threads() == before
