"""Several ranks give the result of one process. Here ranks are threads; test_mpiexec.py uses real ranks."""

import errno
import sys
import time
from types import SimpleNamespace

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.app.tasks import make_task
from numpy_attention.backend import BackendError
from numpy_attention.errors import InputError
from numpy_attention.training import checkpoint
from numpy_attention.training.checkpoint import hold
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.log import read_log
from numpy_attention.training.mpi import OneProcess, Ranks, started_ranks
from numpy_attention.training.parallel import WORTH_THREADS, Workers, loss_and_gradients, mean_loss, shards
from numpy_attention.training.restore import load_run
from numpy_attention.training.trainer import NonFiniteError, Trainer
from tests.training import small_runs
from tests.training.rank_threads import on_ranks, same
from tests.training.small_runs import text

__all__ = ["text"]
STEPS, B, T = 4, 7, 6


def gpt():
    config = na.GPTConfig(vocab_size=11, context_length=T, d_model=12, num_heads=3, num_layers=2)
    return na.GPT(config, np.random.default_rng(1), np.float64)


def seq2seq():
    config = na.Seq2SeqConfig(
        source_vocab_size=9, target_vocab_size=11, context_length=T, d_model=12, num_heads=2, num_layers=2, pad_token=0
    )
    return na.Seq2Seq(config, np.random.default_rng(2), np.float64)


def padded_batch(model, rng):
    """Examples of very different lengths: all tokens of the first example count, no token of the last."""
    lengths = np.array([T, 1, 3, 5, 2, 1, 0])
    targets = np.where(np.arange(T) < lengths[:, None], rng.integers(1, 11, (B, T)), -100)
    ids = np.where(np.arange(T) < np.maximum(lengths, 1)[:, None], rng.integers(1, 11, (B, T)), 0)
    if isinstance(model, na.GPT):
        return ids, targets
    source = rng.integers(1, 9, (B, T - 1))
    source[np.arange(T - 1) >= rng.integers(1, T, (B, 1))] = 0
    return source, ids, targets


def train(make_model, ranks, workers):
    """Losses, and the parameters after a few steps, of one rank."""
    model, rng = make_model(), np.random.default_rng(3)
    optimizer, losses = na.AdamW(model.parameters(), learning_rate=1e-2), []
    count = ranks.size * workers
    with Workers(workers) as pool:
        for _ in range(STEPS):
            batch = padded_batch(model, rng)
            mine = ranks.share(min(count, B))
            loss, grads = loss_and_gradients(model, batch, count, pool, [None] * count, mine)
            loss, grads, _ = ranks.total(model.parameters(), loss, grads, None)
            losses.append(float(loss))
            optimizer.step(grads)
        batches = [padded_batch(model, rng) for _ in range(5)]
        losses.append(mean_loss(model, batches, ranks.workers(pool)))
    return losses, model.parameters()


@pytest.mark.parametrize("make_model", [gpt, seq2seq])
@pytest.mark.parametrize(("size", "workers"), [(1, 3), (2, 1), (2, 2), (3, 1), (4, 1), (5, 2)])
def test_ranks_and_threads_give_the_training_of_one_process(make_model, size, workers):
    expected_losses, expected = train(make_model, OneProcess(), 1)
    losses, parameters = same(on_ranks(size, lambda ranks: train(make_model, ranks, workers)))
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-12)
    # Adam divides by the root of the mean square: where a gradient is zero up to rounding, as that of the keys' bias
    # is, rounding decides the direction of the step. The sums themselves are compared below.
    for name, p in expected.items():
        if not name.endswith("b_k"):
            np.testing.assert_allclose(parameters[name], p, rtol=0, atol=1e-10, err_msg=name)


@pytest.mark.parametrize("make_model", [gpt, seq2seq])
@pytest.mark.parametrize("size", [2, 4, 7])
def test_gradients_of_all_ranks_sum_to_the_gradient_of_the_batch(make_model, size):
    model = make_model()
    batch = padded_batch(model, np.random.default_rng(5))
    loss, cache = model.loss(*batch)
    grads = model.backward(cache)

    def on_rank(ranks):
        with Workers(1) as pool:
            mine = loss_and_gradients(model, batch, size, pool, [None] * size, ranks.share(size))
        total, sums, signal = ranks.total(model.parameters(), *mine, None)
        return float(total), {name: g.copy() for name, g in sums.items()}, signal

    total, sums, signal = same(on_ranks(size, on_rank))
    assert signal is None
    assert total == pytest.approx(float(loss), rel=1e-12)
    for name, g in grads.items():
        np.testing.assert_allclose(sums[name], g, rtol=0, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=name)


def test_ranks_without_a_shard_add_zeros():
    model = gpt()
    batch = tuple(array[:2] for array in padded_batch(model, np.random.default_rng(5)))
    loss, cache = model.loss(*batch)
    grads = model.backward(cache)

    def on_rank(ranks):
        with Workers(1) as pool:
            mine = loss_and_gradients(model, batch, 5, pool, [None] * 5, ranks.share(2))
        return float(ranks.total(model.parameters(), *mine, None)[0]), mine[1].keys()

    results = on_ranks(5, on_rank)
    assert [bool(names) for _, names in results].count(True) == 2
    assert all(total == pytest.approx(float(loss), rel=1e-12) for total, _ in results)
    assert len(shards(batch, 5)) == 2
    assert grads.keys() == model.parameters().keys()


def trainer(directory, ranks, text, **settings):
    fewer = {"steps": 6, "eval_every": 3, "save_every": 2, "workers": 1}
    return small_runs.trainer(directory, text, ranks, **(fewer | settings))


def losses_of(directory):
    log = read_log(directory / "log.jsonl")
    return [(entry["step"], entry["loss"], entry.get("val_loss", 0.0)) for entry in log]


@pytest.mark.parametrize("settings", [{}, {"task": "copy", "accumulate": 2, "context": 5, "positions": "sinusoidal"}])
def test_one_two_and_three_ranks_write_the_same_log_and_one_checkpoint(tmp_path, text, settings):
    runs = {}
    for size in (1, 2, 3):
        runs[size] = tmp_path / str(size)
        endings = on_ranks(size, lambda ranks, to=runs[size]: trainer(to, ranks, text, **settings).run())
        assert endings == ["finished"] * size
        np.testing.assert_allclose(losses_of(runs[size]), losses_of(runs[1]), rtol=2e-5)
        assert not list(runs[size].glob("*.tmp"))
    ours, theirs = (checkpoint.load_arrays(runs[size] / checkpoint.NAME)[0] for size in (1, 3))
    assert theirs.keys() == ours.keys()
    for name, array in ours.items():
        if name.startswith("parameters.") and not name.endswith("b_k"):  # the gradient of b_k is rounding alone
            np.testing.assert_allclose(theirs[name], array, rtol=0, atol=2e-3, err_msg=name)


def test_signal_to_one_rank_stops_all_and_another_number_of_ranks_resumes(tmp_path, text):
    def stopped_at_step_3(ranks):
        run = trainer(tmp_path / "run", ranks, text)
        if ranks.rank == 1:
            small_runs.before_step(run, 2, lambda: setattr(run, "signal", "SIGTERM"))
        return run.run(), run.step

    assert on_ranks(2, stopped_at_step_3) == [("SIGTERM", 3)] * 2

    def resumed(ranks):
        config, arrays, meta = load_run(tmp_path / "run")
        run = Trainer(config, make_task(config), tmp_path / "run", ranks)
        run.restore(arrays, meta)
        return run.step, run.run()

    assert on_ranks(3, resumed) == [(3, "finished")] * 3
    assert trainer(tmp_path / "whole", OneProcess(), text).run() == "finished"
    np.testing.assert_allclose(losses_of(tmp_path / "run"), losses_of(tmp_path / "whole"), rtol=2e-5)


def test_nan_on_one_rank_is_reported_by_all(tmp_path, text):
    def on_rank(ranks):
        run = trainer(tmp_path / "run", ranks, text)
        if ranks.rank == 1:
            run.model.parameters()["blocks.0.attention.w_v"][0, 0] = np.nan
        return run.run()

    errors = on_ranks(2, on_rank)
    assert all(isinstance(error, NonFiniteError) and "blocks.0.attention.w_v" in str(error) for error in errors)
    assert str(errors[0]) == str(errors[1])


def test_refuses_batch_smaller_than_the_number_of_ranks(tmp_path, text):
    for error in on_ranks(3, lambda ranks: trainer(tmp_path / "run", ranks, text, batch=2)):
        assert isinstance(error, InputError)
        assert "3 ranks cannot share a batch of 2" in str(error)


def test_all_ranks_end_with_one_error_when_another_run_holds_the_directory(tmp_path, text, capsys):
    trainer(tmp_path / "run", OneProcess(), text).save()
    with hold(tmp_path / "run"):
        errors = on_ranks(3, lambda ranks: trainer(tmp_path / "run", ranks, text).run())
    assert [error.code for error in errors] == [2, 2, 2]
    err = capsys.readouterr().err
    assert err.count("\n") == err.count("is in use") == 1
    assert on_ranks(3, lambda ranks: trainer(tmp_path / "run", ranks, text).run()) == ["finished"] * 3


def test_all_ranks_end_when_data_cannot_be_written(tmp_path, text, capsys):
    def full(directory):
        raise OSError(errno.ENOSPC, "No space left on device")

    def run(ranks):
        one = trainer(tmp_path / "run", ranks, text)
        if ranks.rank == 0:
            one.task.prepare = full
        return one.run()

    assert [error.code for error in on_ranks(2, run)] == [2, 2]
    message = f"numpy-attention: cannot write to {tmp_path / 'run'}: No space left on device (on rank 0)\n"
    assert capsys.readouterr().err == message


def test_all_ranks_end_with_one_error_when_one_refuses_its_input(capsys):
    def on_rank(ranks):
        def read():
            if ranks.rank == 2:
                raise InputError("cannot read\nthe text")
            return ranks.rank

        return ranks.together(read)

    for error in on_ranks(3, on_rank):
        assert isinstance(error, SystemExit)
        assert error.code == 2
    assert capsys.readouterr().err == "numpy-attention: cannot read the text (on rank 2)\n"
    assert on_ranks(3, lambda ranks: ranks.together(lambda: ranks.rank)) == [0, 1, 2]


def test_refusal_of_all_ranks_is_printed_once_and_bounded(capsys):
    def no_cupy():
        raise BackendError("no CuPy \x1b[31m" + "x" * 5000)

    assert {error.code for error in on_ranks(2, lambda ranks: ranks.together(no_cupy))} == {2}
    message = capsys.readouterr().err
    assert message.startswith("numpy-attention: no CuPy \\x1b[31mxxx")
    assert message.count("\n") == 1
    assert len(message) <= 501


def test_all_ranks_begin_with_the_parameters_of_rank_0_or_report_a_difference():
    def on_rank(ranks, facts):
        p = {"w": np.full(3, float(ranks.rank))}
        ranks.same_start(p, facts(ranks.rank))
        return p["w"]

    for w in on_ranks(3, lambda ranks: on_rank(ranks, lambda rank: "the same")):
        np.testing.assert_array_equal(w, 0.0)
    for error in on_ranks(3, lambda ranks: on_rank(ranks, lambda rank: rank == 2)):
        assert "rank 2 has other settings, another text" in str(error)


@pytest.mark.parametrize("variable", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE"])
def test_refuses_processes_without_a_connection(monkeypatch, variable):
    assert started_ranks().size == 1
    monkeypatch.setenv(variable, "4")
    with pytest.raises(InputError, match="mpiexec -n N python -m mpi4py -m numpy_attention"):
        started_ranks()


def test_refuses_two_processes_without_a_connection(monkeypatch):
    monkeypatch.setenv("PMI_SIZE", "2")
    with pytest.raises(InputError, match="has started 2 processes"):
        started_ranks()
    monkeypatch.setenv("PMI_SIZE", "1")
    assert started_ranks().size == 1


def test_threads_are_used_for_enough_tokens_times_parameters():
    alone = OneProcess()
    alone.cores = 4
    config = TrainConfig(batch=6, context=50)
    enough = WORTH_THREADS // 300  # tokens
    assert [alone.threads(config, count) for count in (enough - 1, enough)] == [1, 4]
    assert alone.threads(TrainConfig(batch=6, context=50, workers=3), 1) == 3
    assert alone.threads(TrainConfig(batch=6, context=50, backend="cupy"), 10**9) == 1
    alone.size = 3
    assert [alone.threads(config, 3 * enough + more) for more in (-1, 0)] == [1, 2]  # of each rank


@pytest.mark.parametrize(("size", "kind"), [(1, OneProcess), (2, Ranks)])
def test_ranks_need_at_least_two_processes(monkeypatch, size, kind):
    comm = SimpleNamespace(Get_size=lambda: size, Get_rank=lambda: 0, Split_type=lambda kind: comm)
    mpi = SimpleNamespace(COMM_WORLD=comm, COMM_TYPE_SHARED=None, IN_PLACE=None)
    monkeypatch.setitem(sys.modules, "mpi4py", SimpleNamespace(MPI=mpi))
    monkeypatch.setitem(sys.modules, "mpi4py.run", SimpleNamespace())
    assert type(started_ranks()) is kind


def test_all_ranks_wait_until_rank_0_has_printed_the_reason(monkeypatch):
    """With real ranks, a rank that ends with an error ends all other ranks."""
    order = []

    class Slow:
        def write(self, text):
            time.sleep(0.1)
            order.append("message")

        def flush(self):
            pass

    def on_rank(ranks):
        def refuse():
            raise InputError("no")

        try:
            ranks.together(refuse)
        finally:
            order.append("ended")

    monkeypatch.setattr(sys, "stderr", Slow())
    on_ranks(3, on_rank)
    assert order.index("ended") > order.index("message")
    assert order[-3:] == ["ended"] * 3
