"""What is not the student's own work, and what is wrong, earns no praise, whatever the file does to its own process.

Each attack is a file that the grader once praised, or that kept it waiting, or one of their kind.
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
    """Grade a file with more lines at its end; what is said."""
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
def test_the_backward_of_the_package_is_kindly_refused(tmp_path: Path, after: str) -> None:
    said = hand_in(tmp_path, after)
    assert "softmax_backward of the package is somebody else's answer. Derive this one yourself" in said


@pytest.mark.parametrize(("name", "after", "words"), [
    ("multi_head_attention", "from numpy_attention.layers import MultiHeadAttention", "MultiHeadAttention.backward of"),
    ("low_rank", "from numpy_attention import LowRank", "LowRank.backward of the package"),
    ("low_rank", "from numpy_attention import LowRank as Theirs\nclass LowRank(Theirs): pass", "LowRank.backward of"),
    ("adam", "from numpy_attention import Adam", "Adam.step of the package"),
    ("causal_mask", "from numpy_attention import causal_mask", "causal_mask of the package"),
    ("softmax", "from numpy_attention.catalogue.table import ours", "holds the answers; leave that import out"),
    ("softmax", "from numpy_attention.catalogue.table import CATALOGUE", "holds the answers; leave that import out"),
])
def test_layers_optimizers_and_the_answers_of_the_grader_are_refused(
    tmp_path: Path, name: str, after: str, words: str
) -> None:
    assert words in hand_in(tmp_path, after, name)


@pytest.mark.parametrize("line", ["import torch", "from jax import grad", "__import__('autograd')"])
def test_programs_that_derive_are_kindly_refused(tmp_path: Path, line: str) -> None:
    words = "finds gradients by itself, and to find this one is the exercise: NumPy is all"
    assert words in hand_in(tmp_path, line)
    assert words in hand_in(tmp_path, "", backward=f"{line}\n    return dy")


def test_a_file_that_can_do_without_such_a_program_is_graded(tmp_path: Path) -> None:
    before = "try:\n    import torch\nexcept ImportError:\n    torch = None\n"
    code, said = grade(tmp_path, "softmax", RIGHT, before=before)
    assert code == 0, said


@pytest.mark.parametrize(("backward", "words"), [
    (DIFFERENCES.replace("FORWARD", "softmax"), "calls softmax again and again, as one does to take differences"),
    (DIFFERENCES.replace("FORWARD", "kept"), "digits, and a formula gives 15: is it made of differences?"),
    (COMPLEX_STEP.replace("IMAGINARY", "1j"), "computes with complex numbers: the complex step is how"),
    (COMPLEX_STEP.replace("IMAGINARY", "complex(0, 1)"), "with complex numbers, which is the complex step"),
], ids=["by name", "by another name", "complex step", "hidden complex step"])
def test_a_gradient_that_is_no_formula_is_noticed(tmp_path: Path, backward: str, words: str) -> None:
    assert words in hand_in(tmp_path, "kept = softmax", backward=backward)


def test_a_forward_that_is_computed_anew_once_is_no_difference(tmp_path: Path) -> None:
    code, said = grade(tmp_path, "softmax", f"y, _ = softmax(np.log(y), axis)\n    {RIGHT}")
    assert code == 0, said


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
], ids=["abs", "more of numpy", "check", "whole package", "equals all", "array of a kind", "code"])
def test_zeros_are_wrong_whatever_is_patched(tmp_path: Path, after: str) -> None:
    said = hand_in(tmp_path, after)
    assert "right softmax: the forward is still that of the formula" in said
    assert "WRONG" in said


def test_noise_is_not_taken_for_round_off(tmp_path: Path) -> None:
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
    (LEFT + "os._exit(0)", "softmax.py ended Python itself"),
    ("def softmax_backward(dy, cache):\n    import os\n    os._exit(0)", "softmax.py ended Python itself"),
    ("def softmax_backward(dy, cache): raise SystemExit(0)", "stopped with SystemExit"),
    ("def softmax_backward(dy, cache): raise KeyboardInterrupt", "stopped with KeyboardInterrupt"),
    (WRITTEN, "softmax.py wrote where the grader listens"),
    ("import os\nos.closerange(0, 100)", "ended Python itself"),
    ("def softmax_backward(dy, cache): return input()", "stopped with EOFError"),
], ids=["answer file", "exit", "SystemExit", "interrupt", "written to the pipe", "all closed", "input"])
def test_an_early_end_is_no_answer(tmp_path: Path, after: str, words: str) -> None:
    assert words in hand_in(tmp_path, after)


@pytest.mark.parametrize(("backward", "words"), [
    ("return np.ones((1 << 14, 1 << 14), np.int8)", "shape (16384, 16384), 268 MB; that is far too large"),
    ("return [list(range(1000))] * 1000", "more than 10000 things"),
    ("return np.ones((1 << 33,))", "stopped with MemoryError"),
    ("held = []\n    while True: held.append(np.empty(1 << 24))", "stopped with MemoryError"),
], ids=["array", "list", "one array", "many arrays"])
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have no limit on addresses")
def test_memory_has_a_bound_here_and_there(tmp_path: Path, backward: str, words: str) -> None:
    assert words in hand_in(tmp_path, "", backward=backward)


@pytest.mark.parametrize("raised", [
    "raise ValueError('\\x1b[31mright\\x07 \\udc80 ' + 'x' * 10_000_000)",
    "raise type('right\\n', (Exception,), {'__str__': lambda self: 1 / 0})()",
    "raise UnicodeDecodeError('utf-8', b'', 0, 1, 'right')",
    "raise ExceptionGroup('right', [ValueError('1'), TypeError('2')])",
    "raise type('Same', (BaseException,), {'__mro__': ()})('right')",
])
def test_an_odd_exception_is_told_in_few_letters(tmp_path: Path, raised: str) -> None:
    said = hand_in(tmp_path, "", backward=raised)
    assert "stopped with" in said
    assert len(said) < 8000
    assert said.isprintable()


def test_a_thread_that_sleeps_is_not_waited_for(tmp_path: Path) -> None:
    before = "import threading, time\nthreading.Thread(target=time.sleep, args=(3600,)).start()\n"
    code, said = grade(tmp_path, "softmax", RIGHT, before=before)
    assert code == 0, said


FORK = """import os, time
here = os.path.join(os.path.dirname(__file__), "child")
child = os.fork()
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
def test_a_forked_child_ends_with_the_grading(tmp_path: Path, backward: str, limit: float) -> None:
    code, said = grade(tmp_path, "softmax", backward, limit, before=FORK.replace("DETACH", "pass"))
    assert (code == 0) == (backward == RIGHT), said
    assert ended(int((tmp_path / "child").read_text("utf-8")))


@POSIX
def test_a_child_out_of_reach_holds_nobody_up(tmp_path: Path) -> None:
    try:
        code, said = grade(tmp_path, "softmax", "os._exit(1)", before=FORK.replace("DETACH", "os.setsid()"))
        assert code == 1
        assert "softmax.py ended Python itself" in said
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "child").read_text("utf-8")), signal.SIGKILL)


@POSIX
def test_a_child_that_comes_back_answers_nothing(tmp_path: Path) -> None:
    before = "import os\nforked = []\n"
    code, said = grade(tmp_path, "softmax", f"forked or forked.append(os.fork())\n    {RIGHT}", before=before)
    assert code == 0, said


def ended(process: int) -> bool:
    """Whether it runs no more, at once or as soon as the machine gets to it; one still listed may have ended."""
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


def test_endless_printing_is_cut_short(tmp_path: Path) -> None:
    said = hand_in(tmp_path, "", backward="while True: print('here' * 1000)")
    assert "printed more than 17 MB: is there a print in a loop that never ends?" in said
    assert "The file printed: herehere" in said
    assert "... and much more" in said
    assert len(said) < 5000
