"""One batch in shards gives what it gives whole."""

import threading
import time

import numpy as np
import pytest

from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.runs.parallel import (
    OrderedSum,
    Workers,
    count_targets,
    default_workers,
    loss_and_gradients,
    mean_loss,
    shards,
)


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
@pytest.mark.parametrize("pieces", [1, 2, 3, 5, 9])
def test_shards_with_different_numbers_of_counted_tokens_add_up_to_the_whole_batch(model, batch, workers, pieces):
    loss, cache = model.loss(*batch)
    grads = model.backward(cache)
    with Workers(workers) as pool:
        sharded, sharded_grads = loss_and_gradients(model, batch, pieces, pool, [None] * pieces)
        assert sharded == pytest.approx(float(loss), rel=1e-13)
        assert mean_loss(model, shards(batch, pieces), pool) == pytest.approx(float(loss), rel=1e-13)
    assert sharded_grads.keys() == grads.keys()
    for name, g in grads.items():
        np.testing.assert_allclose(sharded_grads[name], g, rtol=0, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=name)


def test_the_sum_does_not_depend_on_which_thread_finishes_first(model, batch):
    class Slow:
        """Holds the first shard back until the second has its gradients."""

        def __init__(self, held):
            self.held, self.done = held, threading.Event()

        def loss(self, ids, targets, training, rng):
            if len(ids) == 3 and self.held:
                self.done.wait(5)
            return model.loss(ids, targets)

        def parameters(self):
            return model.parameters()

        def backward(self, cache, dloss, receive):
            grads = model.backward(cache, dloss)
            self.done.set()
            receive(grads)

    with Workers(2) as pool:
        results = [loss_and_gradients(Slow(held), batch, 2, pool, [None, None]) for held in (False, True)]
    assert results[0][0] == results[1][0]
    for name, g in results[0][1].items():
        np.testing.assert_array_equal(g, results[1][1][name])


def test_a_backward_hands_its_gradients_over_instead_of_keeping_them(model, batch):
    _, cache = model.loss(*batch)
    received = {}
    assert model.backward(cache, -0.3, received.update) == {}
    kept = model.backward(cache, -0.3)
    assert list(kept) == list(model.parameters())
    assert received.keys() == kept.keys()
    for name, g in model.backward(cache).items():
        np.testing.assert_array_equal(received[name], kept[name])
        np.testing.assert_allclose(kept[name], -0.3 * g, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("failing", range(3))
def test_no_shard_waits_for_one_that_has_failed(failing):
    total = OrderedSum(3)

    def work(shard):
        with total.told_of_errors(shard):
            for _ in range(4):
                total.add(shard, {"w": np.ones(2)})
                if shard == failing:
                    raise FloatingPointError(f"shard {shard}")

    with Workers(3) as pool, pytest.raises(FloatingPointError, match=f"shard {failing}"):
        list(pool.map(work, range(3)))


def test_the_error_of_a_later_shard_is_not_hidden_by_an_earlier_one_that_waits():
    total, failed = OrderedSum(3), threading.Event()

    def work(shard):
        with total.told_of_errors(shard):
            if shard == 2:
                failed.set()
                raise FloatingPointError("shard 2")
            if shard == 0:
                failed.wait(5)
                time.sleep(0.05)  # shard 1 waits for this one when shard 2 fails
            total.add(shard, {"w": np.ones(2)})

    with Workers(3) as pool, pytest.raises(FloatingPointError, match="shard 2"):
        list(pool.map(work, range(3)))


def test_an_error_in_a_worker_reaches_the_caller(model, batch):
    ids, targets = batch
    with Workers(2) as pool, pytest.raises(ValueError, match="ids"):
        loss_and_gradients(model, (ids + 100, targets), 2, pool, [None, None])


def test_a_batch_is_cut_into_no_more_shards_than_it_has_examples(batch):
    parts = shards(batch, 8)
    assert [len(part[0]) for part in parts] == [1] * 5
    assert sum(count_targets(part) for part in parts) == count_targets(batch) == 18
    assert [len(part[0]) for part in shards(batch, 2)] == [3, 2]


def test_there_are_never_more_workers_than_examples():
    assert [default_workers(batch, 10**9, cores=4) for batch in (1, 3, 64)] == [1, 3, 4]


def test_a_step_too_short_for_two_threads_gets_one(monkeypatch):
    assert default_workers(20, 30_000_000, cores=2) == 2
    assert default_workers(20, 29_000_000, cores=2) == 1
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    monkeypatch.setattr("numpy_attention.runs.parallel._threadpoolctl", lambda: None)
    assert default_workers(20, 10**9, cores=2) == 1  # BLAS cannot be held to one thread each
