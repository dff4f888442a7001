"""Runs that are killed by SIGKILL and resumed: `python killed_runs.py DIRECTORY COUNT SEED` prints each result.

One process imports everything and forks a child for every run. Every second run is killed by its own hand on a line,
drawn at random, of those that a save executes; the others from outside, at a random time. A third of the resumed runs
are killed once more.
"""

import json
import os
import random
import shutil
import signal
import sys
import time
from pathlib import Path

import numpy as np

from numpy_attention.app import train
from numpy_attention.app.main import main
from numpy_attention.training import checkpoint
from numpy_attention.training.log import read_log
from numpy_attention.training.trainer import Trainer

SAVE_EVERY = 4
RUN = ["--layers=1", "--heads=2", "--d-model=8", "--batch=4", "--warmup=3", "--steps=30", "--learning-rate=1e-2"]
RUN += ["--dropout=0.2", "--workers=1", "--log-every=1", "--eval-every=6", f"--save-every={SAVE_EVERY}"]
KINDS = [
    ["--context=8", "--accumulate=2"],
    ["--task=reverse", "--context=6", "--optimizer=sgd", "--beta1=0.9", "--batch=6"],
    ["--task=copy", "--context=5", "--optimizer=adam", "--positions=sinusoidal"],
    ["--vocabulary=bpe", "--vocab-size=270", "--context=8", "--workers=2"],
]


def forked(arguments, kill_line=None):
    """The process id of a child that trains; with (save, line) it kills itself on that line of that save."""
    pid = os.fork()
    if pid:
        return pid
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        if kill_line:
            Trainer.save = deadly(Trainer.save, *kill_line)
        os._exit(main(list(map(str, arguments))))
    except BaseException as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        os._exit(99)


def deadly(save, number, line):
    """A save that counts its executed lines and kills the process at one of them."""
    left = {"saves": number, "lines": line}

    def trace(frame, event, argument):
        if event == "line":
            left["lines"] -= 1
            if left["lines"] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    def counted(self):
        left["saves"] -= 1
        if left["saves"] == 0:
            sys.settrace(trace)
        save(self)
        sys.settrace(None)

    return counted


def lines_of_a_save(trainer):
    """The number of lines that a save executes."""
    count = 0

    def trace(frame, event, argument):
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    Trainer.save(trainer)
    sys.settrace(None)
    return count


def result(directory):
    """Everything that must not depend on kills: the final and best arrays, and the log without its times."""
    arrays = {name: checkpoint.load_arrays(directory / name) for name in (checkpoint.NAME, checkpoint.BEST)}
    log = [
        {key: value for key, value in entry.items() if key not in ("seconds", "tokens_per_second")}
        for entry in read_log(directory / "log.jsonl")
    ]
    return arrays, log


def same(ours, theirs):
    """Whether two results agree bit for bit."""
    for name, (arrays, meta) in ours[0].items():
        others, other_meta = theirs[0][name]
        if arrays.keys() != others.keys() or meta["step"] != other_meta["step"]:
            return False
        if any(array.dtype != others[key].dtype or array.tobytes() != others[key].tobytes()
               for key, array in arrays.items()):  # fmt: skip
            return False
    return ours[1] == theirs[1]


def status(pid):
    """The ending of a child process."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed(arguments, directory, in_save, lines, seconds, chance):
    """Start or resume a run and kill it; False if the run ended before the kill."""
    if in_save:
        return status(forked(arguments, (chance.randint(1, 5), chance.randint(1, lines)))) == -signal.SIGKILL
    pid = forked(arguments)
    while not (directory / checkpoint.NAME).exists():
        time.sleep(0.001)
    time.sleep(chance.uniform(0, seconds))
    os.kill(pid, signal.SIGKILL)
    return status(pid) == -signal.SIGKILL


def story(directory, start, whole, in_save, lines, seconds, chance):
    """One run, killed once or twice, and resumed to its end."""
    arguments, kills, lost, again = start, 0, [], chance.random() < 1 / 3
    while kills < 1 + again:
        if not killed(arguments, directory, in_save, lines, seconds, chance):  # it came to its end before
            if kills:
                break
            shutil.rmtree(directory)
            continue
        kills += 1
        if not (directory / checkpoint.NAME).exists():
            continue  # killed in its very first save: nothing was lost, it begins again
        log = read_log(directory / "log.jsonl")
        saved = checkpoint.load_arrays(directory / checkpoint.NAME)[1]["step"]
        lost.append(max([entry["step"] for entry in log], default=0) - saved)
        arguments = ["train", "--resume", directory]
    code = status(forked(arguments))
    left = [path.name for path in directory.iterdir() if ".tmp" in path.name]
    return {
        "in_save": in_save, "kills": kills, "lost": max(lost, default=0), "code": code, "left": left,
        "same": code == 0 and same(result(directory), whole),
    }  # fmt: skip


def run_all(directory, count, seed):
    """The result of each run."""
    chance = random.Random(seed)
    text = directory / "text.txt"
    text.write_text("one fish two fish red fish blue fish. " * 10, encoding="utf-8")
    train._finish = lambda *arguments: None  # the closing report takes longer than such a run, and saves nothing
    wholes = []
    for i, kind in enumerate(KINDS[: (count + 1) // 2]):  # two stories of each
        out = directory / f"whole-{i}"
        start = time.perf_counter()
        assert status(forked(["train", "--out", out, *RUN, *kind, *data(kind, text)])) == 0
        wholes.append((result(out), 0.7 * (time.perf_counter() - start)))
    trainer = train.Trainer(*prepared(text), directory / "lines")
    (directory / "lines").mkdir()
    trainer.save()
    lines = lines_of_a_save(trainer)
    stories = []
    for i in range(count):
        out, kind = directory / f"run-{i}", i // 2 % len(wholes)
        start = ["train", "--out", out, *RUN, *KINDS[kind], *data(KINDS[kind], text)]
        stories.append(story(out, start, wholes[kind][0], i % 2 == 0, lines, wholes[kind][1], chance))
    return stories


def data(kind, text):
    """The data of a kind of run; tasks other than text make their own data."""
    return [] if kind[0].startswith("--task") else ["--text", text]


def prepared(text):
    """The first kind of run as a configuration and its task."""
    config = train.TrainConfig(text=str(text), layers=1, heads=2, d_model=8, context=8, workers=1)
    return config, train.make_task(config)


if __name__ == "__main__":
    with np.errstate(all="raise"):
        print(json.dumps(run_all(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
