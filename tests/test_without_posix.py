"""The package without the modules that exist only on Unix, as on Windows: the first commands of a reader still work.

A file `sitecustomize.py` on the path hides these modules at the start of every Python process below, including the
grader's. Names that NumPy and the standard library need on this system, such as os.uname and SIGKILL, are not hidden.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.app.commands import SIZES
from tests.grade.hand_in import FOLDER

HIDE = """
import os, signal, sys
import multiprocessing.util, shutil, subprocess, tempfile  # at import, these modules use some of the names below
for name in ("fcntl", "resource", "termios", "tty", "pty", "pwd", "grp", "readline", "syslog"):
    sys.modules[name] = None  # an import of it raises ModuleNotFoundError
of_os = ["fork", "forkpty", "getuid", "geteuid", "getpgid", "getsid", "killpg", "mkfifo", "setsid"]
of_os += ["sched_getaffinity", "statvfs", "O_NOFOLLOW", "O_DIRECTORY"]
for module, names in ((os, of_os), (signal, ["SIGHUP", "SIGPIPE", "SIGALRM", "SIGUSR1", "alarm", "setitimer"])):
    for name in names:
        if hasattr(module, name):
            delattr(module, name)
"""
EVERY_MODULE = """
import importlib, pkgutil, sys
try:
    import fcntl
except ImportError:
    print("fcntl is hidden")
import numpy_attention
for module in pkgutil.walk_packages(numpy_attention.__path__, "numpy_attention."):
    if not module.name.endswith("__main__"):  # it runs when it is imported
        importlib.import_module(module.name)
print(sum(name.startswith("numpy_attention") for name in sys.modules), "modules")
"""
IN_TURN = """
import ast, sys
from numpy_attention.app.main import main
for command in ast.literal_eval(sys.argv[1]):
    print("the next command", flush=True)
    assert main(command) == 0, command
"""


@pytest.fixture
def python(tmp_path):
    """A function that runs this Python with the modules hidden, and returns the exit code and the output."""
    (tmp_path / "sitecustomize.py").write_text(HIDE, encoding="utf-8")
    root = str(Path(__file__).parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), root])}

    def run(*arguments):
        command = [sys.executable, *map(str, arguments)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout + done.stderr

    return run


def test_every_module_can_be_imported(python):
    code, output = python("-c", EVERY_MODULE)
    assert code == 0, output
    assert "fcntl is hidden" in output
    assert int(output.split()[-2]) > 150


def test_train_resume_sample_and_gradcheck_work(python, tmp_path):
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 30, encoding="utf-8")
    commands = [
        ["train", "--text", "text.txt", "--out", "run", *map(str, SIZES)], ["train", "--resume", "run"],
        ["sample", "run", "--prompt", "The ", "--tokens", "5"], ["gradcheck", "softmax"],
    ]
    code, output = python("-c", IN_TURN, repr(commands))
    assert code == 0, output
    *_, sampled, checked = output.split("the next command\n")[1:]
    assert sampled.startswith("The "), output
    assert "checked, 0 wrong" in checked, output


def test_grade_works(python):
    code, output = python("-m", "numpy_attention", "grade", FOLDER / "softmax.py")
    assert code == 1, output
    assert "softmax" in output
    assert "Traceback" not in output
