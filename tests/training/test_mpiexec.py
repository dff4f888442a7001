"""Real ranks, started by mpiexec (extra `mpi`, part of `test` if wheels exist): they agree, end together, and never
hang."""

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.training import checkpoint
from numpy_attention.training.log import read_log
from tests.app.commands import trained
from tests.training.small_runs import text

__all__ = ["text"]
slow = pytest.mark.slow
SIZES = ["--layers=2", "--heads=2", "--d-model=16", "--context=16", "--batch=8", "--warmup=2", "--log-every=1"]
STEPS = ["--steps=12", "--eval-every=6", "--save-every=3"]
# One BLAS thread a rank; and should this be Open MPI, more ranks than cores, for any user.
ENVIRONMENT = os.environ | {
    "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[2]),
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}  # fmt: skip
# What `-m numpy_attention` does, after each rank has told its process id.
PROGRAM = """
import os, pathlib, sys
from mpi4py import MPI
from numpy_attention.app.main import main
pathlib.Path(f"{sys.argv[1]}.pid.{MPI.COMM_WORLD.Get_rank()}").write_text(str(os.getpid()))
sys.exit(main(sys.argv[2:]))
"""


def mpiexec(ranks, *arguments):
    """The command that starts so many ranks. A reader may have no MPI, but a machine that builds the book must."""
    beside = Path(sys.executable).with_name("mpiexec")
    program = str(beside) if beside.exists() else shutil.which("mpiexec")
    if program is None or importlib.util.find_spec("mpi4py") is None:
        end = pytest.fail if os.environ.get("CI") else pytest.skip
        end("real ranks need MPI, which is not here: pip install '.[mpi]'")
    return [program, "-n", str(ranks), sys.executable, "-m", "mpi4py", *map(str, arguments)]


def train(ranks, *arguments):
    command = mpiexec(ranks, "-m", "numpy_attention", "train", *arguments)
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


def losses_of(directory):
    return [(entry["step"], entry["loss"], entry.get("val_loss", 0.0)) for entry in read_log(directory / "log.jsonl")]


def saved_step(directory):
    return checkpoint.load_arrays(directory / checkpoint.NAME)[1]["step"]


def test_two_ranks_give_the_training_of_one_process(tmp_path, text):
    options = [*SIZES, *STEPS, "--text", text, "--workers=1"]
    trained(*options, "--out", tmp_path / "1")
    done = train(2, *options, "--out", tmp_path / "2")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("run: ") == 1  # rank 0 alone speaks
    np.testing.assert_allclose(losses_of(tmp_path / "2"), losses_of(tmp_path / "1"), rtol=2e-5)


@slow
@pytest.mark.parametrize("task", ["a few words", "text", "copy"])
def test_one_two_and_four_ranks_train_and_agree(tmp_path, text, task):
    extra = {"a few words": ["--text", text], "text": [], "copy": ["--task=copy", "--positions=sinusoidal"]}[task]
    for ranks in (1, 2, 4):
        done = train(ranks, *SIZES, *STEPS, *extra, "--workers=1", "--out", tmp_path / str(ranks))
        assert done.returncode == 0, done.stderr
        assert done.stdout.count("run: ") == 1  # rank 0 alone speaks
        np.testing.assert_allclose(losses_of(tmp_path / str(ranks)), losses_of(tmp_path / "1"), rtol=2e-5)


@slow
@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("make_model", ["gpt", "seq2seq"])
def test_real_ranks_equal_the_single_process_in_double_precision(tmp_path, ranks, make_model):
    """Examples with very different padding, so the ranks count different numbers of tokens."""
    program = tmp_path / "program.py"
    program.write_text(
        "import numpy as np\n"
        "from numpy_attention.training.mpi import OneProcess, started_ranks\n"
        "from numpy_attention.training.parallel import Workers, loss_and_gradients\n"
        f"from tests.training.test_mpi import padded_batch, {make_model} as make_model\n"
        "ranks, model = started_ranks(), make_model()\n"
        "batch = padded_batch(model, np.random.default_rng(5))\n"
        "expected_loss, cache = model.loss(*batch)\n"
        "expected = model.backward(cache)\n"
        "with Workers(1) as pool:\n"
        "    mine = loss_and_gradients(model, batch, ranks.size, pool, [None] * 9, ranks.share(ranks.size))\n"
        "loss, grads, _ = ranks.total(model.parameters(), *mine, None)\n"
        "np.testing.assert_allclose(loss, expected_loss, rtol=1e-12)\n"
        "for name, g in expected.items():\n"
        "    np.testing.assert_allclose(grads[name], g, rtol=0, atol=1e-12 * max(1.0, np.abs(g).max()), err_msg=name)\n"
        "print(f'agreed {ranks.size};', flush=True, end='')\n"
    )
    command = mpiexec(ranks, program)
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"agreed {ranks};") == ranks


@slow
def test_run_resumed_with_the_same_ranks_equals_the_uninterrupted_run(tmp_path):
    options = [*SIZES, *STEPS, "--dropout=0.1", "--workers=1"]
    assert train(2, *options, "--out", tmp_path / "whole").returncode == 0
    with running(2, tmp_path / "part", *options) as (job, pids):
        wait_for(lambda: len(read_log(tmp_path / "part" / "log.jsonl")) >= 4)
        kill_mpiexec(job, pids())
    assert saved_step(tmp_path / "part") < 12
    assert train(2, "--resume", tmp_path / "part").returncode == 0
    whole, part = (checkpoint.load_arrays(tmp_path / name / checkpoint.NAME)[0] for name in ("whole", "part"))
    for name, array in whole.items():
        np.testing.assert_array_equal(part[name], array, err_msg=name)


@slow
def test_run_resumes_with_another_number_of_ranks(tmp_path):
    options = [*SIZES, "--save-every=3", "--eval-every=100", "--workers=1"]
    assert train(1, *options, "--steps=9", "--out", tmp_path / "whole").returncode == 0
    with running(4, tmp_path / "part", *options, "--steps=9") as (job, pids):
        wait_for(lambda: len(read_log(tmp_path / "part" / "log.jsonl")) >= 4)
        kill_mpiexec(job, pids())
    assert saved_step(tmp_path / "part") < 9
    for ranks in (2, 1):
        assert train(ranks, "--resume", tmp_path / "part").returncode == 0
    np.testing.assert_allclose(losses_of(tmp_path / "part"), losses_of(tmp_path / "whole"), rtol=2e-5)


@contextlib.contextmanager
def running(ranks, directory, *options):
    """A run in progress: the process of mpiexec, and the ids of the ranks' processes once they have begun."""
    program = directory.with_suffix(".py")
    program.write_text(PROGRAM)
    command = mpiexec(ranks, program, directory, "train", "--out", directory, *options)
    files = [directory.with_name(f"{directory.name}.pid.{rank}") for rank in range(ranks)]
    job = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield job, lambda: [int(file.read_text("utf-8")) for file in files]
    finally:  # a test that fails leaves nobody behind
        if job.poll() is None:
            job.kill()
            for file in filter(Path.exists, files):
                with contextlib.suppress(ProcessLookupError, ValueError):
                    os.kill(int(file.read_text("utf-8")), signal.SIGKILL)
        job.communicate()


@contextlib.contextmanager
def long_run(ranks, directory, *options):
    """A very long run, stopped between its steps."""
    endless = ["--steps=1000000", "--save-every=50", "--eval-every=1000", *options]
    with running(ranks, directory, *SIZES, *endless) as (job, pids):
        wait_for(lambda: len(read_log(directory / "log.jsonl")) >= 20 or job.poll() is not None)
        yield job, pids()


@pytest.mark.parametrize(("ranks", "rank"), [(2, 1), pytest.param(4, 0, marks=slow), pytest.param(4, 3, marks=slow)])
@pytest.mark.parametrize("others_wait", [True, False])
def test_killed_rank_ends_the_job_within_ten_seconds(tmp_path, text, ranks, rank, others_wait):
    directory = tmp_path / "run"
    with long_run(ranks, directory, "--text", text) as (job, pids):
        if others_wait:  # it stands still, until all others are in the Allreduce
            os.kill(pids[rank], signal.SIGSTOP)
            wait_for(lambda: stands_still(directory / "log.jsonl"))
        os.kill(pids[rank], signal.SIGKILL)
        start = time.monotonic()
        job.communicate(timeout=30)
        assert time.monotonic() - start < 10
        assert job.returncode != 0
        wait_for(lambda: not any(map(runs, pids)))
        checkpoint.load_arrays(directory / checkpoint.NAME)  # whole


def stands_still(log):
    before = len(read_log(log))
    time.sleep(0.3)
    return len(read_log(log)) == before


@slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signal_to_the_ranks_saves_the_step_and_prints_how_to_resume(tmp_path, number):
    with long_run(2, tmp_path / "run") as (job, pids):
        for pid in pids:
            os.kill(pid, number)
        out, err = job.communicate(timeout=30)
    assert job.returncode != 0
    assert "Traceback" not in err
    step = int(re.search(r"after step (\d+), which is saved", out).group(1))
    assert saved_step(tmp_path / "run") == step


@slow
def test_error_on_one_rank_ends_all_with_its_message(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        "from mpi4py import MPI\n"
        "from numpy_attention.training.trainer import Trainer\n"
        "from numpy_attention.app.main import main\n"
        "step = Trainer.one_step\n"
        "def broken(self):\n"
        "    if self.step == 5 and self.ranks.rank == 1: raise RuntimeError('the fan has stopped')\n"
        "    return step(self)\n"
        "Trainer.one_step = broken\n"
        f"main({['train', *SIZES, *STEPS, '--out', str(tmp_path / 'run')]!r})\n"
    )
    done = subprocess.run(mpiexec(3, program), env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode != 0
    assert "RuntimeError: the fan has stopped" in done.stderr


@slow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--stpes", "3"], "unrecognized arguments"), (["--text", "/no/such"], "cannot read /no/such"),
     (["--batch", "2"], "3 ranks cannot share a batch of 2")],
)
def test_unusable_input_is_reported_once(tmp_path, arguments, message):
    done = train(3, "--out", tmp_path / "run", *arguments)
    assert done.returncode == 2
    assert done.stderr.count("numpy-attention: ") == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def kill_mpiexec(job, pids):
    """Kill the launcher and wait until the ranks have ended."""
    job.kill()
    job.wait()
    wait_for(lambda: not any(map(runs, pids)))


def runs(pid):
    """Whether a process exists and has not ended; a process without a parent may remain as a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text("utf-8").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "waited for a minute"
        time.sleep(0.02)
