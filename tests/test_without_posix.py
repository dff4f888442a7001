"""The package without Unix, threads and child processes, as on Windows and in a browser.

A program hides them in its own process and then takes a reader's first steps: import, train, grade, sample. Names that
NumPy and the standard library need on this system, such as os.uname, are not hidden.
"""

import subprocess
import sys
from pathlib import Path

import pytest

HIDE = """
import multiprocessing.util, os, shutil, signal, subprocess, sys, tempfile, threading  # these use some names below
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "readline", "syslog"):
    sys.modules[name] = None  # an import of it raises ModuleNotFoundError
of_os = ["fork", "forkpty", "getuid", "geteuid", "getpgid", "getsid", "killpg", "mkfifo", "setsid"]
of_os += ["sched_getaffinity", "statvfs", "O_NOFOLLOW", "O_DIRECTORY"]
for module, names in ((os, of_os), (signal, ["SIGHUP", "SIGPIPE", "SIGALRM", "SIGUSR1", "alarm", "setitimer"])):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)

def refuse(*_, **__):
    raise RuntimeError("there are no threads and no processes")

threading.Thread.start = subprocess.Popen.__init__ = refuse
"""
FIRST_STEPS = """
import importlib, pkgutil
import numpy as np
import numpy_attention as na
from numpy_attention.app.main import main

RUN_AT_IMPORT = ("__main__", "tutor.child")
for module in pkgutil.walk_packages(na.__path__, "numpy_attention."):
    if not module.name.endswith(RUN_AT_IMPORT):
        importlib.import_module(module.name)

rng = np.random.default_rng(0)
model = na.GPT(na.GPTConfig(vocab_size=7, context_length=5, d_model=8, num_heads=2, num_layers=1), rng)
optimizer = na.Adam(model.parameters())
ids = rng.integers(0, 7, (2, 5))
losses = []
for _ in range(20):
    loss, cache = model.loss(ids, ids)
    losses.append(float(loss))
    optimizer.step(model.backward(cache))
print("learns:", losses[-1] < losses[0])
def softmax_backward(dy, cache):
    y, axis = cache
    return y * (dy - (dy * y).sum(axis=axis, keepdims=True))

print(na.grade("softmax", softmax_backward))
assert main(["sample", "--tokens", "5"]) == 0
assert main(["gradcheck", "softmax"]) == 0
"""


@pytest.mark.slow
def test_first_steps_need_no_unix_no_threads_and_no_processes() -> None:
    command, root = [sys.executable, "-c", HIDE + FIRST_STEPS], Path(__file__).parents[1]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "learns: True" in done.stdout
    assert "4 of 4 properties hold" in done.stdout
    assert "checked, 0 wrong" in done.stdout
