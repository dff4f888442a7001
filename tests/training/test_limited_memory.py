"""Texts larger than the memory: a run needs the same memory for a long text as for a short text."""

import gc
import os
import random
import signal
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.training import byte_pairs, data
from numpy_attention.training.data import default_text
from numpy_attention.training.log import read_log
from numpy_attention.training.tasks import text as text_task
from tests.training.small_runs import resume, trainer

PROGRAM = Path(__file__).with_name("limited_memory.py")
SHORT, LONG = 50_000, 350_000
LIMIT, TEXT = 280, 310  # megabytes; 200 and 225 are enough for characters
SIZES = ["--layers=1", "--heads=2", "--d-model=32", "--context=32", "--batch=4", "--warmup=2", "--log-every=1"]


def write_text(path, size):
    """At least so many bytes of English: the lines of Python's help, shuffled again and again."""
    lines, rng, written = default_text().splitlines(keepends=True), random.Random(7), 0
    with open(path, "wb") as file:
        while written < size:
            written += file.write("".join(rng.sample(lines, 500)).encode())


def peak_memory(directory, size, vocabulary):
    """The peak memory, in bytes, of a run, of the resumed run, and of the n-gram predictors."""
    directory.mkdir()
    write_text(directory / "text.txt", size)
    gc.collect()
    tracemalloc.start()
    try:
        settings = {"vocabulary": vocabulary, "vocab_size": 262, "steps": 3, "eval_every": 3, "workers": 1}
        trainer(directory / "run", str(directory / "text.txt"), **settings).run()
        run = resume(directory / "run")
        assert run.run() == "finished"
        assert run.task.reference_lines()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("vocabulary", "in_memory"), [("char", 0), ("byte", 0), ("bpe", 0), ("char", LONG)], ids=str
)
def test_memory_does_not_grow_with_a_long_text(
    tmp_path, monkeypatch, vocabulary, in_memory
):
    for module, name, value in (
        (text_task, "READ_AT_ONCE", 2**12), (text_task, "COUNTED", 2**12), (text_task, "IN_MEMORY", 2 * in_memory),
        (data, "HELD_OUT", 2**10), (byte_pairs, "REMEMBERED", 100),
    ):  # fmt: skip
        monkeypatch.setattr(module, name, value)
    peak_memory(tmp_path / "first", 20_000, vocabulary)  # loads modules
    grown = peak_memory(tmp_path / "long", LONG, vocabulary) - peak_memory(tmp_path / "short", SHORT, vocabulary)
    assert (grown > (LONG - SHORT) / 2) if in_memory else (grown < (LONG - SHORT) / 10)


@pytest.fixture
def disk(tmp_path):
    """A folder for large temporary files."""
    yield tmp_path
    for path in tmp_path.rglob("*"):
        if path.is_file():
            path.unlink()


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems than Linux do not limit a process's memory so")
@pytest.mark.parametrize("vocabulary", ["char", "bpe"])
def test_text_larger_than_the_memory_can_be_trained_resumed_and_sampled(disk, vocabulary):
    text, run = disk / "text.txt", disk / "run"
    write_text(text, TEXT * 1_000_000)
    with limited("read", text) as job:
        assert job.communicate()[1] == "out of memory\n"

    options = [*SIZES, f"--vocabulary={vocabulary}", "--steps=200", "--eval-every=100", "--save-every=50"]
    with limited("train", "--text", text, "--out", run, *options) as job:
        while len(read_log(run / "log.jsonl")) < 3 and job.poll() is None:
            time.sleep(0.02)
        job.send_signal(signal.SIGTERM)
        assert (job.communicate()[1], job.returncode) == ("", 143)
    for command in (["train", "--resume", run], ["sample", run, "--prompt", "The ", "--tokens", "20"]):
        with limited(*command) as job:
            out, err = job.communicate()
            assert (err, job.returncode) == ("", 0)
    assert out.startswith("The ")
    log = read_log(run / "log.jsonl")
    assert [entry["step"] for entry in log] == list(range(1, 201))
    assert log[-1]["val_loss"] < log[0]["loss"] - 0.5
    ids = np.load(next(run.glob("ids-*.npy")), mmap_mode="r", allow_pickle=False)
    tokens = 1 / 3 if vocabulary == "bpe" else 1  # a byte
    assert len(ids) == pytest.approx(tokens * TEXT * 1e6, rel=0.2)


def limited(*arguments):
    command = [sys.executable, str(PROGRAM), str(LIMIT), *map(str, arguments)]
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(PROGRAM.parents[2])}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
