"""Hostile answers to exercises: the grader ends in time, leaves no process, and accepts no wrong answer.

A file has three parts: code before the exercise, the answer, and code after it.
"""

import os
import subprocess
import tempfile
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from numpy_attention.catalogue.table import EXERCISES
from numpy_attention.grade.grading import STATES
from numpy_attention.grade.run import grade_file
from tests.fuzz.attack import attack, tally
from tests.fuzz.judging import Finding
from tests.grade.hand_in import FOLDER, UNWRITTEN

LIMIT = 3.0  # seconds for a file
START = 40.0  # seconds for the grader, on a busy machine
ANSWERS = [  # all are wrong
    "return np.zeros_like(y)", "return dy", "return y * dy", "return None", "return 1 / 0", "while True: pass",
    "return (dy, dy)",
    "return softmax_backward(dy, cache)", "return y * (dy - (dy * y).sum())", "return np.full_like(y, np.nan)",
    "return",
    "import os; os._exit(0)", "raise SystemExit(0)", "raise KeyboardInterrupt", "exit()", "return [dy]",
    "return 'right'",
    "print('x' * 10**6)\n    return dy", "while True: print('x' * 10**5)", "import os; os.kill(os.getpid(), 9)",
    "yield dy",
    "return np.zeros((10**5, 10**5, 10**3))", "x = [0]\n    while True: x = x + x", "import time; time.sleep(10**6)",
    "import os\n    if os.fork() == 0:\n        while True: pass\n    return dy",
    "import os\n    os.fork()\n    return y * dy",
    "import ctypes\n    if ctypes.PyDLL(None).fork() == 0:\n        while True: pass\n    return dy",
    "import threading\n    threading.Thread(target=lambda: [0 for _ in iter(int, 1)]).start()\n    return dy",
    "return np.frompyfunc(lambda *_: 0, 2, 1)(y, dy)",
    "return type('A', (np.ndarray,), {'__eq__': lambda *_: True})(y.shape)",
    "raise Exception('\\ud800\\x1b[31m' * 1000)", "return dy.astype(object)", "return (one for one in dy)",
    "dy[...] = 0; return dy",
    "import sys; sys.setrecursionlimit(10**9); return softmax_backward(dy, cache)", "return np.float16(dy)",
    "return memoryview(dy)",
    "import subprocess, sys\n    subprocess.Popen([sys.executable, '-c', 'while True: pass'])\n    return dy", "(",
    "return )", "\0",
    "return y * (dy - (dy * y).sum(axis=axis, keepdims=True)) * (1 + 1e-4)", "return __import__('ctypes').string_at(0)",
]
AROUND = [
    "", "", "", "import numpy as np\nnp.allclose = lambda *a, **k: True", "np.ndarray",
    "def softmax(x, axis=-1): return x, (x, axis)",
    "import builtins; builtins.abs = lambda x: 0", "import sys; sys.exit(0)", "import os; os._exit(0)",
    "while True: pass",
    "print('All 6 properties hold.')", "import sys; sys.stdout.write('{\"state\": \"right\"}')", "raise SystemExit",
    "(", "\ud800",
    "import os\nfor i in range(3, 50):\n    try: os.write(i, b'right' * 100)\n    except OSError: pass",
    "import os; os.close(1)",
    "import os; os.close(2)",
    "# -*- coding: utf-16 -*-", "\t x",
    "import ctypes\n[ctypes.PyDLL(None).fork() for _ in range(4)]",
    "import os\nos.fork()", "import os\nif os.fork() == 0:\n    while True: pass",
    "import atexit, time; atexit.register(time.sleep, 99)",
    "import signal; [signal.signal(s, signal.SIG_IGN) for s in (2, 15, 14)]",
    "import gc; gc.disable(); x = bytearray(10**10)",
    "from unittest import mock; import numpy.testing; numpy.testing.assert_allclose = mock.Mock()",
    "softmax_backward = None", "del np",
    "class Yes:\n    def __getattr__(self, name): return self\n    __call__ = __eq__ = lambda *a: True\nnp = Yes()",
    "\x0c", "\r", "\u200b",
    "import numpy_attention.grade.worker as w; w.__dict__.clear()", "import sys; sys.modules.clear()",
    "x = " + "(" * 5000, "𝕩 = 1",
    "import threading, os; threading.Timer(0.2, os._exit, [0]).start()",
    "import os; os.setsid() if os.getpid() != os.getsid(0) else 0",
    "import resource; resource.setrlimit(resource.RLIMIT_CPU, (1, 1))", "import sys; sys.stdin.close()",
    "import sys; sys.stdin.read()",
    "import tracemalloc; tracemalloc.start()", "import faulthandler; faulthandler.disable()",
    "import os; os.chdir('/')",
]
RAW = [
    b"", b"\0", b"\xff\xfe\0", b"\xef\xbb\xbf", b"x" * 10**6, b"\n" * 10**6,
    b"# coding: nope\n", b"x = 1\n" * 10**5, b"\x7fELF",
]


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """The exercise on softmax with a wrong answer and other code in it; sometimes it is not Python."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(RAW) | st.binary(max_size=50))
    return handed_in(draw(st.sampled_from(ANSWERS)), draw(st.sampled_from(AROUND)), draw(st.sampled_from(AROUND)))


def handed_in(answer: str, before: str = "", after: str = "") -> bytes:
    text = (FOLDER / "softmax.py").read_text(encoding="utf-8").replace(UNWRITTEN, answer, 1)
    return f"{before}\n{text}\n{after}\n".encode("utf-8", errors="surrogatepass")


@attack(count=4, dear=True)
@given(answers())
@example(handed_in("import os\n    if os.fork() == 0:\n        while True: pass\n    return dy"))
@example(handed_in("import ctypes\n    if ctypes.PyDLL(None).fork() == 0:\n        while True: pass\n    return dy"))
@example(handed_in("while True: print('x' * 10**5)"))
@example(handed_in("return dy", "import sys; sys.modules.clear()"))
@example(handed_in("return dy", "", "import sys; sys.modules.clear()"))
@example(handed_in("print('Traceback'); return dy"))
def test_no_wrong_answer_passes_or_blocks_the_grader(answer: bytes) -> None:
    judge(answer)


def judge(answer: bytes) -> None:
    """Grade a file.

    Raises: Finding.
    """
    mark, started = f"FUZZED={uuid.uuid4()}", time.monotonic()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv(*mark.split("=", 1))
        patch.setenv("HYPOTHESIS_STORAGE_DIRECTORY", folder)
        file = Path(folder, "softmax.py")
        file.write_bytes(answer)
        with ThreadPoolExecutor(1) as pool:  # the grader uses Hypothesis, which complains about nested calls
            grade = pool.submit(grade_file, file, EXERCISES["softmax"], LIMIT).result()
    took = time.monotonic() - started
    tally("answers", grade.state)
    if grade.state not in STATES or grade.state == "right":
        raise Finding(f"a wrong answer is {grade.state}: {grade.text[:500]}")
    if took > LIMIT + START:
        raise Finding(f"graded after {took:.0f} seconds, with a limit of {LIMIT:g}")
    ours = grade.text.partition("The file printed:")[0]  # the file may print a traceback itself
    traceback = "Traceback" in ours or "grade/worker.py" in grade.text
    if traceback or len(grade.text) > 20_000 or any(ord(c) < 32 and c != "\n" for c in grade.text):
        raise Finding(f"not a text for a student ({len(grade.text)} characters): {grade.text[:500]!r}")
    left = still_running(mark)
    if left:
        subprocess.run(["kill", "-9", *map(str, left)], check=False)
        raise Finding(f"{len(left)} processes of the answer still run after the grading")


def still_running(mark: str) -> list[int]:
    """The processes with this text in their environment; ending processes get a moment to end."""
    for _ in range(20):
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark.encode() in (process / "environ").read_bytes() and int(process.name) != os.getpid():
                    found.append(int(process.name))
            except OSError:  # the process has just ended
                continue
        if not found:
            return []
        time.sleep(0.1)
    return found
