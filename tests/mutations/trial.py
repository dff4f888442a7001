"""Tries mutations: each in a separate process, on a copy of the tree with one changed file.

The processes are forked from a process that has imported pytest, NumPy and Hypothesis, but nothing of the package, so
a trial takes about as long as its tests. A process that a test starts uses the changed file too. Only tests that reach
the function run, the nearest first: the test file with the name of the module, its folder, and then all others.
"""

import ast
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path
from typing import Any

import pytest

from tests.mutations.changes import Mutation

SECONDS = 20  # of processor time, plus three times the time of the tests
PATIENCE = 15  # the limit in real time is this many times longer, because the machine may be shared
MEMORY = 6 * 2**30
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
LOADED = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]  # Hypothesis, a plugin of pytest

Reach = dict[str, dict[str, Any]]  # written by reach.py: the seconds and the functions of every test


class Killer:
    """A plugin for pytest in a trial: it orders the tests and records the first failure."""

    def __init__(self, tests: list[str], reach: Reach) -> None:
        self.places = {test: i for i, test in enumerate(tests)}
        self.reach, self.first = reach, ""

    def place(self, item: pytest.Item) -> int | None:
        """The index of a test, or of its file, in the list of tests; -1 for an unknown test, so it runs first."""
        if item.nodeid not in self.reach:
            return -1
        return self.places.get(item.nodeid, self.places.get(item.nodeid.split("::")[0]))

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if self.place(item) is not None), key=self.place)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.first = self.first or f"{report.nodeid} (import)"

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.first = self.first or report.nodeid


def copy_of_the_tree(root: Path, work: Path) -> Path:
    """Copy all files that git does not ignore, and compile them so that Python notices every change of a source."""
    tree, packed = work / "tree", work / "tree.tar"
    subprocess.run(["rm", "-rf", str(tree)], check=True)
    tree.mkdir(parents=True)
    listed = ["git", "ls-files", "-co", "--exclude-standard"]
    names = subprocess.run(listed, cwd=root, stdout=subprocess.PIPE, check=True).stdout
    subprocess.run(["tar", "-c", "-f", str(packed), "-T", "-"], cwd=root, input=names, check=True)
    subprocess.run(["tar", "-x", "-f", str(packed), "-C", str(tree)], check=True)
    by_content = [sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "checked-hash", "numpy_attention"]
    subprocess.run(by_content, cwd=tree, check=True)
    return tree


def killed_by(
    tree: Path, mutation: Mutation, reach: Reach, log: Path, first: str = "", near_only: bool = False
) -> str:
    """The test that notices, or "time"; empty if no test notices. The test `first` runs before all others."""
    path = tree / "numpy_attention" / f"{mutation.file}.py"
    source = path.read_bytes()
    path.write_text(ast.unparse(mutation.tree) + "\n")
    try:
        for tests in ([first] * (first in reach), *rounds(mutation, reach)[: 1 if near_only else 2]):
            seconds = SECONDS + 3 * sum(reach[test]["seconds"] for test in tests if test in reach)
            tests = [test for test in tests if (tree / test.split("::")[0]).exists()]
            if tests and (killer := _run(tests, reach, seconds, log)):
                return killer
        return ""
    finally:
        path.write_bytes(source)


def rounds(mutation: Mutation, reach: Reach) -> tuple[list[str], list[str]]:
    """The near tests that reach the function, and the far tests, in the order in which they run.

    For code outside of functions: the tests that reach any function of the class, or of the file. The whole test file
    of the module is at the end of the near tests, because some of its tests may be newer than the recorded reach.
    """
    folder, _, name = mutation.file.rpartition("/")
    package = f"tests/{folder.split('/')[0]}/"
    own = f"tests/{folder}/test_{name}.py"
    passed = {test: recorded for test, recorded in reach.items() if "outcome" not in recorded}

    def reaching(place: str) -> list[str]:
        def within(function: str) -> bool:  # the place itself, a function in it, or a function around it
            return f"{function}.".startswith(f"{place}.") or place.startswith(f"{function}.")

        return [test for test, recorded in passed.items() if any(map(within, recorded["functions"]))]

    tests = reaching(mutation.place) or reaching(mutation.file)
    tests.sort(key=lambda test: reach[test]["seconds"])
    file_of = {test: test.split("::")[0] for test in tests}
    near = [test for test in tests if file_of[test].startswith(package)]
    near.sort(key=lambda test: (file_of[test] != own, not test.startswith(f"tests/{folder}/")))
    return [*near, own], [test for test in tests if not file_of[test].startswith(package)]


def _run(tests: list[str], reach: Reach, seconds: float, log: Path) -> str:
    """Run pytest in a forked process, up to the first failure."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _run_pytest_in_child(tests, reach, int(seconds), log, write)
    os.close(write)
    deadline = time.monotonic() + PATIENCE * seconds
    done, status = 0, 0
    while not done and time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # the trial and all that it started
    if not done:
        os.waitpid(child, 0)
    with os.fdopen(read) as pipe:
        said = pipe.read()
    if not done or (os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGXCPU):
        return "time"
    return said or ("" if status == 0 else f"stops with status {status}")


def _run_pytest_in_child(tests: list[str], reach: Reach, seconds: int, log: Path, write: int) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, stream)
    import resource  # only on Unix, like fork

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    killer, code = Killer(tests, reach), 1
    try:
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        code = int(pytest.main([*OPTIONS, *LOADED, *files], plugins=[killer]))
    except BaseException:
        traceback.print_exc()
    finally:
        if code not in (0, 5):  # 5: the tests do not exist any more
            os.write(write, (killer.first or f"pytest ends with {code}").encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def warm_up() -> None:
    """Import the libraries that the tests import, but nothing of the package."""
    for name in ("hypothesis.extra.numpy", "hypothesis.stateful", "matplotlib.pyplot", "numpy.testing"):
        __import__(name)
    assert not any(name.split(".")[0] == "numpy_attention" for name in sys.modules)


def loaded(path: Path) -> Reach:
    """The file that reach.py has written."""
    return json.loads(path.read_text("utf-8"))
