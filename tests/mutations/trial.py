"""Try mutations: each in a process of its own, on a copy of the tree with one file changed.

The processes are forked from one that has imported pytest, NumPy and Hypothesis, but nothing of the package, so that
a trial takes about as long as its tests. A process that a test starts sees the changed file as well. The tests that
reach the function are asked, the nearest first: the file of the same name, its folder, and then all others.
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

SECONDS = 20  # of the processor's time, and three times what the tests took
PATIENCE = 15  # times as long by the clock: the machine may be shared
MEMORY = 6 * 2**30
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "--tb=short"]
LOADED = ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]  # Hypothesis, a plugin of pytest

Reach = dict[str, dict[str, Any]]  # what reach.py has written: of every test its seconds and functions


class Killer:
    """A plugin of the trial's pytest: which tests in what order, and which of them failed first."""

    def __init__(self, tests: list[str], reach: Reach) -> None:
        self.places = {test: i for i, test in enumerate(tests)}
        self.reach, self.first = reach, ""

    def place(self, item: pytest.Item) -> int | None:
        """The place of a test among those that are asked, or that of its whole file; what is not known comes first."""
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
    """What git does not ignore, in a folder of its own, compiled so that a changed source is always seen."""
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
    """The test that notices, or "time"; empty when none does. `first` is asked before all others."""
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
    """The near tests that reach the function, and the far ones, in the order in which they are asked.

    For what stands outside of functions those that reach anything of the class, or of the file. At the end of the near
    ones stands the test file of the same name, whole: its tests may be newer than what is known of their reach.
    """
    folder, _, name = mutation.file.rpartition("/")
    room = f"tests/{folder.split('/')[0]}/"
    own = f"tests/{folder}/test_{name}.py"
    passed = {test: told for test, told in reach.items() if "outcome" not in told}

    def reaching(place: str) -> list[str]:
        def within(function: str) -> bool:  # the place itself, a function inside of it, or around it
            return f"{function}.".startswith(f"{place}.") or place.startswith(f"{function}.")

        return [test for test, told in passed.items() if any(map(within, told["functions"]))]

    tests = reaching(mutation.place) or reaching(mutation.file)
    tests.sort(key=lambda test: reach[test]["seconds"])
    file_of = {test: test.split("::")[0] for test in tests}
    near = [test for test in tests if file_of[test].startswith(room)]
    near.sort(key=lambda test: (file_of[test] != own, not test.startswith(f"tests/{folder}/")))
    return [*near, own], [test for test in tests if not file_of[test].startswith(room)]


def _run(tests: list[str], reach: Reach, seconds: float, log: Path) -> str:
    """Pytest in a forked process, up to the first failure."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _be_the_trial(tests, reach, int(seconds), log, write)
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


def _be_the_trial(tests: list[str], reach: Reach, seconds: int, log: Path, write: int) -> None:
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
        os.dup2(file, stream)
    import resource  # of Unix, as fork is

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))
    killer, code = Killer(tests, reach), 1
    try:
        files = list(dict.fromkeys(test.split("::")[0] for test in tests))
        code = int(pytest.main([*OPTIONS, *LOADED, *files], plugins=[killer]))
    except BaseException:
        traceback.print_exc()
    finally:
        if code not in (0, 5):  # 5: the tests are no longer there
            os.write(write, (killer.first or f"pytest ends with {code}").encode())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


def warm_up() -> None:
    """Import what the tests import, and nothing of the package."""
    for name in ("hypothesis.extra.numpy", "hypothesis.stateful", "matplotlib.pyplot", "numpy.testing"):
        __import__(name)
    assert not any(name.split(".")[0] == "numpy_attention" for name in sys.modules)


def loaded(path: Path) -> Reach:
    """What reach.py has written."""
    return json.loads(path.read_text("utf-8"))
