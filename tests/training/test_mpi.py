"""Several ranks give the result of one process. Here ranks are threads, except in the last test."""

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.training.c30_parallel import Workers, loss_and_gradients, mean_loss
from numpy_attention.training.c31_mpi import Ranks, SharedWorkers
from numpy_attention.training.c32_trainer import NonFiniteError, Trainer
from numpy_attention.training.log import read_log
from numpy_attention.training.restore import load_run
from tests.app.commands import trained
from tests.training import small_runs
from tests.training.small_runs import text

__all__ = ["text"]
B, T = 7, 6


class Comm:
    """The communicator of one rank: a table and a barrier, which all threads share."""

    def __init__(self, rank, table, barrier):
        self.rank, self.table, self.barrier = rank, table, barrier

    def Get_rank(self):
        return self.rank

    def Get_size(self):
        return len(self.table)

    def allgather(self, value):
        self.table[self.rank] = value
        self.barrier.wait()
        values = list(self.table)
        self.barrier.wait()  # no rank writes before all ranks have read
        return values

    def Allreduce(self, in_place, buffer):
        buffer[...] = sum(self.allgather(buffer.copy()))


def on_ranks(size, function):
    """The values that `function(ranks)` returns, or the errors that it raises, on each of `size` ranks."""
    table, barrier, results = [None] * size, threading.Barrier(size, timeout=60), [None] * size

    def work(rank):
        mpi = SimpleNamespace(COMM_WORLD=Comm(rank, table, barrier), IN_PLACE=None)
        try:
            results[rank] = function(Ranks(mpi))
        except (Exception, SystemExit) as error:
            results[rank] = error

    # Python 3.11 may fail if two threads parse the header of a file at once (AST constructor recursion depth), so
    # a thread keeps the interpreter until it waits. Real ranks are processes.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(5.0)
    threads = [threading.Thread(target=work, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    sys.setswitchinterval(interval)
    return results


def same(values):
    """The single value on which all ranks agree."""
    for value in values[1:]:
        np.testing.assert_equal(value, values[0])
    return values[0]


def part(ranks, shards):
    """The shards that one rank computes."""
    return range(ranks.rank * shards // ranks.size, (ranks.rank + 1) * shards // ranks.size)


def gpt():
    config = na.GPTConfig(vocab_size=11, context_length=T, d_model=12, num_heads=3, num_layers=2)
    return na.GPT(config, np.random.default_rng(1), np.float64)


def padded_batch(rng):
    """Examples of very different lengths: all tokens of the first example count, no token of the last."""
    lengths = np.array([T, 1, 3, 5, 2, 1, 0])
    targets = np.where(np.arange(T) < lengths[:, None], rng.integers(0, 11, (B, T)), -100)
    return rng.integers(0, 11, (B, T)), targets


@pytest.mark.parametrize(("size", "workers"), [(2, 1), (2, 2), (3, 1), (7, 1)])
def test_loss_and_gradients_of_all_ranks_are_those_of_the_batch(size, workers):
    model, rng = gpt(), np.random.default_rng(5)
    batch, held_out = padded_batch(rng), [padded_batch(rng) for _ in range(5)]
    loss, cache = model.loss(*batch)
    grads = model.backward(cache)

    def on_rank(ranks):
        count = size * workers
        with Workers(workers) as pool:
            mine = part(ranks, min(count, B))
            mine = loss_and_gradients(model, batch, count, pool, [None] * count, mine)
        total, sums, stop = ranks.total(model.parameters(), *mine, False)
        with Workers(1) as pool:
            return float(total), sums, stop, mean_loss(model, held_out, SharedWorkers(ranks, pool))

    total, sums, stop, of_held_out = same(on_ranks(size, on_rank))
    assert not stop
    assert total == pytest.approx(float(loss), rel=1e-12)
    with Workers(1) as pool:
        assert of_held_out == pytest.approx(mean_loss(model, held_out, pool), rel=1e-12)
    assert sums.keys() == grads.keys()
    for name, g in grads.items():
        np.testing.assert_allclose(sums[name], g, rtol=0, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=name)


def trainer(directory, ranks, text, **settings):
    fewer = {"steps": 6, "eval_every": 3, "save_every": 2, "workers": 1}
    return small_runs.trainer(directory, text, ranks, **(fewer | settings))


def losses_of(directory):
    log = read_log(directory / "log.jsonl")
    return [(entry["step"], entry["loss"], entry.get("val_loss", 0.0)) for entry in log]


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
    assert trainer(tmp_path / "whole", Ranks(), text).run() == "finished"
    np.testing.assert_allclose(losses_of(tmp_path / "run"), losses_of(tmp_path / "whole"), rtol=2e-5)


def test_nan_on_one_rank_is_reported_by_all(tmp_path, text):
    def on_rank(ranks):
        run = trainer(tmp_path / "run", ranks, text)
        if ranks.rank == 1:
            run.model.parameters()["blocks.0.attention.w_v"][0, 0] = np.nan
        return run.run()

    errors = on_ranks(2, on_rank)
    assert all(isinstance(error, NonFiniteError) and "blocks.0.attention.w_v" in str(error) for error in errors)


def test_refuses_batch_smaller_than_the_number_of_ranks(tmp_path, text):
    for error in on_ranks(3, lambda ranks: trainer(tmp_path / "run", ranks, text, batch=2)):
        assert isinstance(error, InputError)
        assert "3 ranks cannot share a batch of 2" in str(error)


def test_all_ranks_end_with_one_error_when_one_refuses_its_input(capsys):
    def on_rank(ranks):
        def read():
            if ranks.rank == 2:
                raise InputError("cannot read\nthe text")
            return ranks.rank

        return ranks.together(read)

    assert [error.code for error in on_ranks(3, on_rank)] == [2, 2, 2]
    assert capsys.readouterr().err == "numpy-attention: cannot read the text\n"
    assert on_ranks(3, lambda ranks: ranks.together(lambda: ranks.rank)) == [0, 1, 2]


@pytest.mark.slow
def test_mpiexec_with_two_ranks_gives_the_training_of_one_process(tmp_path, text):
    pytest.importorskip("mpi4py")
    beside = Path(sys.executable).with_name("mpiexec")
    mpiexec = str(beside) if beside.exists() else shutil.which("mpiexec")
    if mpiexec is None:
        pytest.skip("real ranks need MPI: pip install '.[mpi]'")
    options = ["--layers=2", "--heads=2", "--d-model=16", "--context=16", "--batch=8", "--warmup=2", "--log-every=1",
               "--steps=12", "--eval-every=6", "--save-every=3", "--workers=1", "--text", text]  # fmt: skip
    trained(*options, "--out", tmp_path / "1")

    def on_two_ranks(*options):
        command = [mpiexec, "-n", "2", sys.executable, "-m", "mpi4py", "-m", "numpy_attention", "train", *options]
        environment = os.environ | {
            "OPENBLAS_NUM_THREADS": "1", "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"
        }
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)

    done = on_two_ranks(*options, "--out", str(tmp_path / "2"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run: ") == 1  # only rank 0 prints
    np.testing.assert_allclose(losses_of(tmp_path / "2"), losses_of(tmp_path / "1"), rtol=2e-5)
    refused = on_two_ranks("--stpes=3")
    assert refused.returncode == 2
    assert refused.stderr.count("unrecognized arguments") == 1
