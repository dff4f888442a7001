"""A wrong answer, or an answer that is not the student's own work, never passes, even if the file attacks its process.

Each attack is a file that once passed or that blocked the grader, or a similar file.
"""

import contextlib
import os
import signal
import sys
import time
from pathlib import Path

import pytest

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade.run import grade_file
from tests.grade.hand_in import FOLDER, grade

RIGHT = "return y * (dy - (dy * y).sum(axis=axis, keepdims=True))"
ZEROS = "return np.zeros_like(y)"
POSIX = pytest.mark.skipif(os.name != "posix", reason="needs fork")

DIFFERENCES = """x, h, dx = np.log(y), 1e-5, np.zeros_like(y)
    for i in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[i] = h
        dx[i] = ((FORWARD(x + step, axis)[0] - FORWARD(x - step, axis)[0]) * dy).sum() / (2 * h)
    return dx"""
COMPLEX_STEP = """x, dx = np.log(y), np.zeros_like(y)
    for i in np.ndindex(x.shape):
        z = x.astype(complex)
        z[i] += 1e-30 * IMAGINARY
        dx[i] = (getattr(softmax(z, axis)[0], "im" + "ag") * dy).sum() / 1e-30
    return dx"""


def hand_in(tmp_path: Path, after: str, name: str = "softmax", backward: str = ZEROS) -> str:
    """Grade a file with more lines at its end; return the text for the student."""
    text = (FOLDER / f"{name}.py").read_text("utf-8").replace("raise NotImplementedError", backward, 1)
    file = tmp_path / f"{name}.py"
    file.write_text(text + "\n\n" + after + "\n")
    found = grade_file(file, EXERCISES[name], 60.0)
    assert found.state != "right", found.text
    assert "Traceback" not in found.text
    return " ".join(found.text.split())


@pytest.mark.parametrize("after", [
    "from numpy_attention import softmax, softmax_backward",
    "from numpy_attention.ops import *",
    ("import functools, numpy_attention as na\n"
    "softmax, softmax_backward = na.softmax, functools.partial(na.softmax_backward)"),
    ("import sys, importlib\nops = importlib.import_module('numpy_attention.ops.' + 'softmax')\n"
    "softmax = ops.softmax\nsoftmax_backward = getattr(ops, 'softmax_backward')"),
    ("from numpy_attention import softmax, softmax_backward as theirs\n"
    "def softmax_backward(dy, cache): return theirs(dy, cache)"),
    ("import sys\nna = sys.modules['numpy_attention']\nsoftmax = na.softmax\n"
    "softmax_backward = lambda dy, cache: list(map(na.softmax_backward, [dy], [cache]))[0]"),
], ids=["import", "star", "partial", "importlib", "call", "map"])
def test_refuses_backward_of_the_package(tmp_path: Path, after: str) -> None:
    output = hand_in(tmp_path, after)
    assert "softmax_backward of the package is not your own answer. Write your own" in output


@pytest.mark.parametrize(("name", "after", "words"), [
    ("multi_head_attention", "from numpy_attention.layers import MultiHeadAttention", "MultiHeadAttention.backward"),
    ("low_rank", "from numpy_attention import LowRank", "LowRank.backward of the package"),
    ("low_rank", "from numpy_attention import LowRank as Theirs\nclass LowRank(Theirs): pass", "LowRank.backward of"),
    ("adam", "from numpy_attention import Adam", "Adam.step of the package"),
    ("causal_mask", "from numpy_attention import causal_mask", "causal_mask of the package"),
    ("softmax", "from numpy_attention.catalogue.table import ours", "contains the answers; remove this import"),
    ("softmax", "from numpy_attention.catalogue.table import CATALOGUE", "contains the answers; remove this import"),
])
def test_refuses_layers_optimizers_and_answers_of_the_grader(
    tmp_path: Path, name: str, after: str, words: str
) -> None:
    assert words in hand_in(tmp_path, after, name)


@pytest.mark.parametrize("line", ["import torch", "from jax import grad", "__import__('autograd')"])
def test_refuses_libraries_that_differentiate(tmp_path: Path, line: str) -> None:
    words = "computes gradients by itself, but this gradient is your exercise: use NumPy only"
    assert words in hand_in(tmp_path, line)
    assert words in hand_in(tmp_path, "", backward=f"{line}\n    return dy")


def test_file_that_catches_the_import_error_is_graded(tmp_path: Path) -> None:
    before = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    code, output = grade(tmp_path, "softmax", RIGHT, before=before)
    assert code == 0, output


@pytest.mark.parametrize(("backward", "words"), [
    (DIFFERENCES.replace("FORWARD", "softmax"), "calls softmax many times, as numerical differences do"),
    (DIFFERENCES.replace("FORWARD", "kept"), "digits, but a formula gives 15: is it made of numerical differences?"),
    (COMPLEX_STEP.replace("IMAGINARY", "1j"), "computes with complex numbers: the grader checks gradients in"),
    (COMPLEX_STEP.replace("IMAGINARY", "complex(0, 1)"), "with complex numbers, which is the complex step"),
], ids=["by name", "by another name", "complex step", "hidden complex step"])
def test_refuses_gradient_from_differences_or_complex_steps(tmp_path: Path, backward: str, words: str) -> None:
    assert words in hand_in(tmp_path, "kept = softmax", backward=backward)


def test_backward_may_compute_its_forward_once(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "softmax", f"y, _ = softmax(np.log(y), axis)\n    {RIGHT}")
    assert code == 0, output


@pytest.mark.parametrize("after", [
    "np.abs = lambda x: 0.0 * x",
    "np.array_equal = np.allclose = lambda *args, **kwargs: True\nnp.max = np.median = lambda *args, **kwargs: 0.0",
    "import numpy_attention.catalogue.compare as compare\ncompare.same = compare.close = lambda *args, **kwargs: True",
    ("import sys\nfor name, module in list(sys.modules.items()):\n    if name.startswith('numpy_attention'):\n"
    "        for one in ('check', 'close', 'same'): setattr(module, one, lambda *args, **kwargs: True)"),
    ("class Anything:\n    __eq__ = __le__ = __lt__ = __ge__ = lambda *_: True\n"
    "def softmax_backward(dy, cache): return Anything()"),
    ("class Array(np.ndarray):\n    __sub__ = __rsub__ = lambda *_: 0.0\n"
    "def softmax_backward(dy, cache): return (0 * dy).view(Array)"),
    ("import gc\nfor one in gc.get_objects():\n"
    "    if getattr(one, '__name__', '') == 'same' and type(one).__name__ == 'function':\n"
    "        one.__code__ = (lambda *args: True).__code__"),
], ids=["abs", "more of numpy", "check", "whole package", "equal to all", "subclass of array", "code"])
def test_zero_gradient_is_wrong_with_patched_modules(tmp_path: Path, after: str) -> None:
    output = hand_in(tmp_path, after)
    assert "right softmax: the given forward" in output
    assert "WRONG" in output


def test_random_gradient_is_wrong(tmp_path: Path) -> None:
    noise = "return np.random.default_rng(abs(hash(dy.tobytes() + y.tobytes()))).standard_normal(y.shape)"
    assert "WRONG" in hand_in(tmp_path, "", backward=noise)


LEFT = """import json, os, sys
answer = {"exercise": "softmax", "state": "right", "passed": 6, "of": 6, "lines": [], "summary": ""}
for name in ["answer.json", "grade.json", *filter(os.path.isfile, sys.argv[1:])]:
    with open(os.path.join(os.path.dirname(__file__), name), "w") as file:
        json.dump(answer, file)
"""
WRITTEN = """import os
for i in range(3, 30):
    try:
        os.write(i, b'right' * 9)
    except OSError:
        pass"""


@pytest.mark.parametrize(("after", "words"), [
    (LEFT + "os._exit(0)", "softmax.py ended the Python process"),
    ("def softmax_backward(dy, cache):\n    import os\n    os._exit(0)", "softmax.py ended the Python process"),
    ("def softmax_backward(dy, cache): raise SystemExit(0)", "stopped with SystemExit"),
    ("def softmax_backward(dy, cache): raise KeyboardInterrupt", "stopped with KeyboardInterrupt"),
    (WRITTEN, "softmax.py wrote to the pipe of the grader"),
    ("import os\nos.closerange(0, 100)", "ended the Python process"),
    ("def softmax_backward(dy, cache): return input()", "stopped with EOFError"),
], ids=["answer file", "exit", "SystemExit", "interrupt", "writes to the pipe", "closes all", "input"])
def test_early_exit_is_reported(tmp_path: Path, after: str, words: str) -> None:
    assert words in hand_in(tmp_path, after)


@pytest.mark.parametrize(("backward", "words"), [
    ("return np.ones((1 << 14, 1 << 14), np.int8)", "shape (16384, 16384), 268 MB, which is too large"),
    ("return [list(range(1000))] * 1000", "more than 10000 values"),
    ("return np.ones((1 << 33,))", "stopped with MemoryError"),
    ("held = []\n    while True: held.append(np.empty(1 << 24))", "stopped with MemoryError"),
], ids=["array", "list", "one array", "many arrays"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no limit on addresses")
def test_memory_is_limited_in_both_processes(tmp_path: Path, backward: str, words: str) -> None:
    assert words in hand_in(tmp_path, "", backward=backward)


@pytest.mark.parametrize("raised", [
    "raise ValueError('\\x1b[31mright\\x07 \\udc80 ' + 'x' * 10_000_000)",
    "raise type('right\\n', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raise UnicodeDecodeError('utf-8', b'', 0, 1, 'right')",
    "raise ExceptionGroup('right', [ValueError('1'), TypeError('2')])",
    "raise type('Same', (BaseException,), {'__mro__': ()})('right')",
])
def test_message_of_unusual_exception_is_short_and_printable(tmp_path: Path, raised: str) -> None:
    output = hand_in(tmp_path, "", backward=raised)
    assert "stopped with" in output
    assert len(output) < 8000
    assert output.isprintable()


def test_grader_does_not_wait_for_sleeping_thread(tmp_path: Path) -> None:
    before = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n"
    code, output = grade(tmp_path, "softmax", RIGHT, before=before)
    assert code == 0, output


STARTS = """
import multiprocessing, os, subprocess, sys
true, allowed = [sys.executable, "-c", ""], []
for name, call in {
    "fork": os.fork, "forkpty": os.forkpty, "system": lambda: os.system("true"), "popen": lambda: os.popen("true"),
    "posix_spawn": lambda: os.posix_spawn(true[0], true, {}), "spawnv": lambda: os.spawnv(os.P_NOWAIT, true[0], true),
    "subprocess": lambda: subprocess.run(true), "fork of multiprocessing": multiprocessing.Process(target=int).start,
    "spawn of multiprocessing": multiprocessing.get_context("spawn").Process(target=int).start,
    "kill": lambda: os.kill(os.getppid(), 0), "killpg": lambda: os.killpg(os.getpgid(os.getppid()), 0),
    "exec": lambda: os.execv(true[0], true),
}.items():
    try:
        call()
        allowed.append(name)
    except PermissionError as error:
        assert "an answer needs no other process" in str(error)
os.kill(os.getpid(), 0)
if allowed:
    raise ValueError(allowed)
"""


@POSIX
def test_functions_of_python_that_start_or_signal_a_process_are_refused(tmp_path: Path) -> None:
    code, output = grade(tmp_path, "softmax", RIGHT, before=STARTS)
    assert code == 0, output


@pytest.mark.parametrize("start", ["subprocess.run([sys.executable, '-c', ''])", "os.kill(os.getppid(), 0)"])
def test_refused_process_is_named_with_its_line(tmp_path: Path, start: str) -> None:
    output = hand_in(tmp_path, "", backward=f"import os, subprocess, sys\n    {start}\n    return dy")
    called = "os.kill" if "kill" in start else "subprocess.Popen"
    assert f"stopped with PermissionError: {called} is refused: an answer needs no other process; remove" in output
    assert start in output


# The audit event belongs to Python: C code can start a process, as docs/teaching.md says.
FORK = """import ctypes, os, time
here = os.path.join(os.path.dirname(__file__), "child")
child = ctypes.PyDLL(None).fork()
if child == 0:
    DETACH
    with open(here + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(here + ".part", here)
    time.sleep(3600)
while not os.path.exists(here):
    time.sleep(0.01)
"""


@POSIX
@pytest.mark.parametrize(("backward", "limit"), [(RIGHT, 60.0), ("while True: pass", 4.0)], ids=["right", "endless"])
def test_child_forked_by_c_code_is_killed_after_grading(tmp_path: Path, backward: str, limit: float) -> None:
    code, output = grade(tmp_path, "softmax", backward, limit, before=FORK.replace("DETACH", "pass"))
    assert (code == 0) == (backward == RIGHT), output
    assert ended(int((tmp_path / "child").read_text("utf-8")))


@POSIX
def test_child_of_c_code_in_another_session_lives_on_but_the_grader_does_not_wait(tmp_path: Path) -> None:
    try:
        code, output = grade(tmp_path, "softmax", "os._exit(1)", before=FORK.replace("DETACH", "os.setsid()"))
        assert code == 1
        assert "softmax.py ended the Python process" in output
        os.kill(int((tmp_path / "child").read_text("utf-8")), 0)  # not defended; the page for teachers says so
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "child").read_text("utf-8")), signal.SIGKILL)


@POSIX
def test_forked_child_in_a_backward_sends_no_reply(tmp_path: Path) -> None:
    before = "import ctypes\nforked = []\n"
    backward = f"forked or forked.append(ctypes.PyDLL(None).fork())\n    {RIGHT}"
    code, output = grade(tmp_path, "softmax", backward, before=before)
    assert code == 0, output


def ended(process: int) -> bool:
    """Whether a process has ended or ends within 30 seconds; an ended process may still be listed as a zombie."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{process}/stat").read_text("utf-8").rpartition(")")[2].split()[0] in "ZX":
                return True
        time.sleep(0.01)
    return False


def test_endless_printing_is_stopped(tmp_path: Path) -> None:
    output = hand_in(tmp_path, "", backward="while True: print('here' * 1000)")
    assert "printed more than 17 MB: is there a print in an endless loop?" in output
    assert "The file printed: herehere" in output
    assert "... and many more lines" in output
    assert len(output) < 5000
