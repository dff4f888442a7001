"""A plugin for pytest: a gradient check over many examples, each one a test.

    @pytest.mark.gradcheck("x: ... d, w: d", examples=25)
    def test_my_op(gradcheck, drawn):
        gradcheck(my_op, my_op_backward, drawn)

The marker runs the test on examples of a spec (`spec.py`), 25 by default: `drawn` holds the arrays by
argument name, `gradcheck` checks them and keeps its report for the summary (`pytest -rA` shows those of tests that
passed). The seeds are 0, 1, 2, ... and the same on every run. A failed example prints the command that repeats it:

    pytest "test_mine.py::test_my_op[seed7-d3]" --gradcheck-seed 7

and the example of any other seed is run in the same way. A check that takes longer says so every five seconds, where a
terminal or `-v` asks for it. Hypothesis is not needed; with it, `strategies.py` shrinks what fails.

The checks of one test run one after the other: Python's lock lets no two threads compute on small arrays at once, and
two were slower than one. pytest-xdist runs examples on several cores (`pytest -n auto`).

pytest imports this file when it starts, wherever the package is installed, so all else is imported by its first use.

PYTEST_DONT_REWRITE
"""

import argparse
import contextlib
import difflib
import importlib
import re
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

EVERY = 5.0  # seconds between two signs of life
EXAMPLES = 25
OPTIONS = ("examples", "seed", "fixed", "at_least", "largest", "dtype", "special")  # of the marker


@dataclass(frozen=True)
class Example:
    """What makes the arrays of one test: the spec, the seed, and what the marker says about the sizes."""

    spec: str
    seed: int
    how: Mapping[str, Any]
    name: str

    def draw(self) -> Any:
        """The arrays."""
        return _of("spec").draw_example(self.spec, self.seed, **self.how)

    def __str__(self) -> str:
        how = "".join(f", {name}={value!r}" for name, value in self.how.items())
        return f"numpy_attention.gradcheck.spec.draw_example({self.spec!r}, {self.seed}{how})"


class Checker:
    """What the fixture `gradcheck` is: the three checks, with the seed of the example unless another one is given."""

    def __init__(self, node: pytest.Item, seed: int, say: Callable[[str], None] | None) -> None:
        self._node, self._seed, self._say = node, seed, say

    def __repr__(self) -> str:
        return f"<gradcheck, seed {self._seed}>"

    def __call__(self, op: Any, op_backward: Any, inputs: Any, **more: Any) -> Any:
        """As `numpy_attention.gradcheck.gradcheck`."""
        __tracebackhide__ = True
        return self._run("gradcheck", op, op_backward, inputs, **more)

    def vjp(self, f: Any, vjp: Any, inputs: Any, **more: Any) -> Any:
        """As `numpy_attention.gradcheck.gradcheck_vjp`."""
        __tracebackhide__ = True
        return self._run("gradcheck_vjp", f, vjp, inputs, **more)

    def layer(self, layer: Any, inputs: Any, **more: Any) -> Any:
        """As `numpy_attention.gradcheck.gradcheck_layer`."""
        __tracebackhide__ = True
        return self._run("gradcheck_layer", layer, inputs, **more)

    def _run(self, name: str, /, *what: Any, **more: Any) -> Any:
        __tracebackhide__ = True
        checks = _of("check")
        try:
            with signs_of_life(f"gradcheck {self._node.name}", self._say):
                report = getattr(checks, name)(*what, **{"seed": self._seed, **more})
        except _of("report").GradientError as error:
            raise error.with_traceback(None) from error.__cause__  # the way through the checker says nothing
        self._node.add_report_section("call", "gradcheck", f"{report}\n")
        return report


@contextlib.contextmanager
def signs_of_life(name: str, say: Callable[[str], None] | None) -> Iterator[None]:
    """While this lasts, say so every few seconds."""
    if say is None:
        yield
        return
    over, begin = threading.Event(), time.monotonic()

    def watch() -> None:
        while not over.wait(EVERY):
            say(f"{name}: {time.monotonic() - begin:.0f} s so far")

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@pytest.fixture
def gradcheck(request: pytest.FixtureRequest) -> Checker:
    """Check gradients: gradcheck(op, op_backward, inputs), or gradcheck.vjp(f, vjp, inputs), .layer(layer, inputs)."""
    example = _example(request.node)
    return Checker(request.node, example.seed if example else 0, _voice(request.config))


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Any:
    """The arrays of one example, by argument name; needs @pytest.mark.gradcheck("x: B d")."""
    example = getattr(request, "param", None)
    if not isinstance(example, Example):
        pytest.fail(f"{request.node.name}: drawn needs a marker with a spec: @pytest.mark.gradcheck('x: B d')", False)
    return example.draw()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What the command line takes."""
    group = parser.getgroup("numpy_attention", "gradient checks")
    group.addoption("--gradcheck-seed", type=_natural, metavar="N", help="run the example of this seed alone")
    group.addoption("--gradcheck-examples", type=_natural, metavar="N", help="so many of each test, whatever it says")


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known."""
    config.addinivalue_line(
        "markers",
        "gradcheck(spec, examples=25, seed=0, fixed, at_least, largest, dtype, special): run the test on `drawn` "
        "arrays that fit the spec, as in 'x: B T d, w: d'",
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each example of a marked function."""
    marker = metafunc.definition.get_closest_marker("gradcheck")
    if marker is None:
        return
    name = metafunc.function.__name__
    if "drawn" not in metafunc.fixturenames:
        pytest.fail(f"{name}: @pytest.mark.gradcheck draws inputs; take them: def {name}(gradcheck, drawn)", False)
    try:
        found = _examples(metafunc.config, marker)
    except ValueError as error:
        raise pytest.fail.Exception(f"{name}: @pytest.mark.gradcheck: {error}", pytrace=False) from None
    metafunc.parametrize("drawn", found, ids=[example.name for example in found], indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Say below a failure how to repeat it."""
    report = (yield).get_result()
    example = _example(item)
    if report.failed and example:
        again = f'pytest "{item.nodeid}" --gradcheck-seed {example.seed}'
        report.sections.append(("how to repeat it", f"{again}\nits arrays: {example}\n"))


def _examples(config: pytest.Config, marker: pytest.Mark) -> list[Example]:
    """The examples that a marker asks for, or those that the command line does."""
    if len(marker.args) != 1 or not isinstance(marker.args[0], str):
        raise ValueError(f"takes one spec, as in 'x: B T d, w: d', got {marker.args}")
    for name in marker.kwargs:
        if name not in OPTIONS:
            near = difflib.get_close_matches(name, OPTIONS, 1)
            meant = f"did you mean {near[0]}? " if near else ""
            raise ValueError(f"no option {name!r}; {meant}There are {', '.join(OPTIONS)}")
    spec, how = marker.args[0], dict(marker.kwargs)
    first, count = how.pop("seed", 0), how.pop("examples", EXAMPLES)
    only, instead = config.getoption("gradcheck_seed"), config.getoption("gradcheck_examples")
    seeds = range(first, first + (count if instead is None else instead)) if only is None else [only]
    return [Example(spec, seed, how, _name(spec, seed, how)) for seed in seeds]


def _name(spec: str, seed: int, how: Mapping[str, Any]) -> str:
    """Such as seed7-B2-T3: `-k seed7-` finds it."""
    known = {name: value for name, value in how.items() if name not in ("dtype", "special")}
    sizes = _of("spec").example_sizes(spec, seed, **known)
    leading = "x".join(re.findall(r"\d+", str(sizes.pop("...", ""))))
    parts = [f"seed{seed}", f"leading{leading}" if leading else "", *(f"{size}{n}" for size, n in sizes.items())]
    return "-".join(filter(None, parts))


def _example(node: Any) -> Example | None:
    params: dict[str, Any] = getattr(getattr(node, "callspec", None), "params", {})
    example = params.get("drawn")
    return example if isinstance(example, Example) else None


def _voice(config: pytest.Config) -> Callable[[str], None] | None:
    """How to say something while a test runs and its output is captured; None where no one watches."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")  # none in the workers of pytest-xdist
    capture = config.pluginmanager.get_plugin("capturemanager")
    if reporter is None or not (reporter.isatty or config.getoption("verbose") > 0):
        return None

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
            reporter.ensure_newline()
            reporter.write_line(line)

    return say


def _of(module: str) -> Any:
    return importlib.import_module(f"numpy_attention.gradcheck.{module}")


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not one of 0, 1, 2, ...")
    return int(text)
