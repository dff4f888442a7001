"""A plugin for pytest that records which tests reach which functions of the package, for the trials.

    python -m pytest -p tests.mutations.reach --reach=reach.json

For each test it writes the seconds and the called functions, for example `models/gpt.GPT.forward`. Calls in a process
that a test starts are not recorded; such tests are found by their folder.
"""

import json
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

PACKAGE = str(Path(__file__).parents[2] / "numpy_attention") + "/"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--reach", type=Path, required=True, help="where to write which tests reach which functions")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Reach(config.getoption("--reach")))


class Reach:
    """Watches the calls of every test, its fixtures included."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.tests: dict[str, dict[str, Any]] = {}
        self.called: set[CodeType] = set()

    def _watch(self, frame: FrameType, event: str, arg: Any) -> None:
        self.called.add(frame.f_code)  # only at the call: returning None turns off tracing by line

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.called = set()
        self.tests[item.nodeid] = {"seconds": 0.0, "functions": []}
        sys.settrace(self._watch)
        threading.settrace(self._watch)
        try:
            return (yield)
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.tests[item.nodeid]["functions"] = sorted(filter(None, map(place_of, self.called)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        test = self.tests[report.nodeid]
        test["seconds"] = round(test["seconds"] + report.duration, 2)
        if report.outcome != "passed":
            test["outcome"] = report.outcome

    def pytest_sessionfinish(self) -> None:
        self.path.write_text(json.dumps(self.tests, indent=0) + "\n")


def place_of(code: CodeType) -> str:
    """For example `models/gpt.GPT.forward`, also for its inner functions; empty for other code and for modules."""
    if not code.co_filename.startswith(PACKAGE) or code.co_qualname == "<module>":
        return ""
    file = code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
    return f"{file}.{code.co_qualname.split('.<locals>')[0]}"
