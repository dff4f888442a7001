"""A plugin for pytest: a gradient check on many random examples; each example is a test.

    @pytest.mark.gradcheck("x: ... d, w: d", examples=25)
    def test_my_op(gradcheck, drawn):
        gradcheck(my_op, my_op_backward, drawn)

The marker runs the test on examples of a spec (`spec.py`), by default 25. `drawn` holds the arrays by argument name;
`gradcheck` checks them and adds its report to the summary (`pytest -rA` also shows the reports of passed tests). The
seeds are 0, 1, 2, ... in every run. A failed example prints the command that repeats it:

    pytest "test_mine.py::test_my_op[seed7]" --gradcheck-seed 7

Any other seed works in the same way. Hypothesis is not needed; with Hypothesis, `strategies.py` also shrinks failing
examples.

pytest imports this file when it starts, so every other module of the package is imported at its first use.

PYTEST_DONT_REWRITE
"""

import functools
import importlib
import inspect
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest


@dataclass(frozen=True)
class Example:
    """The origin of the arrays of one test: the spec, the seed, and other options of `draw_example`."""

    spec: str
    seed: int
    how: Mapping[str, Any]


class Checker:
    """The value of the fixture `gradcheck`: the three checks; the default seed is the seed of the example."""

    def __init__(self, node: pytest.Item, seed: int) -> None:
        self._node, self._seed = node, seed

    def _run(self, name: str, /, *what: Any, **more: Any) -> Any:
        __tracebackhide__ = True
        checks = _of("check")
        try:
            report = getattr(checks, name)(*what, **{"seed": self._seed, **more})
        except _of("report").GradientError as error:
            raise error.with_traceback(None) from error.__cause__  # a traceback through the checker does not help
        self._node.add_report_section("call", "gradcheck", f"{report}\n")
        return report

    __call__ = functools.partialmethod(_run, "gradcheck")
    vjp = functools.partialmethod(_run, "gradcheck_vjp")
    layer = functools.partialmethod(_run, "gradcheck_layer")


@pytest.fixture
def gradcheck(request: pytest.FixtureRequest) -> Checker:
    """Check gradients: gradcheck(op, op_backward, inputs), or gradcheck.vjp(f, vjp, inputs), .layer(layer, inputs)."""
    example = _example(request.node)
    return Checker(request.node, example.seed if example else 0)


@pytest.fixture
def drawn(request: pytest.FixtureRequest) -> Any:
    """The arrays of one example, by argument name; needs @pytest.mark.gradcheck("x: B d")."""
    example = getattr(request, "param", None)
    if not isinstance(example, Example):
        pytest.fail(f"{request.node.name}: drawn needs a marker with a spec: @pytest.mark.gradcheck('x: B d')", False)
    return _of("spec").draw_example(example.spec, example.seed, **example.how)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line."""
    group = parser.getgroup("numpy_attention", "gradient checks")
    group.addoption("--gradcheck-seed", type=int, metavar="N", help="run only the example of this seed")
    group.addoption("--gradcheck-examples", type=int, metavar="N", help="run this many examples of each test")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
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
        pytest.fail(f"{name}: @pytest.mark.gradcheck draws inputs; use them: def {name}(gradcheck, drawn)", False)
    try:
        found = _examples(metafunc.config, *marker.args, **marker.kwargs)
    except (TypeError, ValueError) as error:
        raise pytest.fail.Exception(f"{name}: @pytest.mark.gradcheck: {error}", pytrace=False) from None
    metafunc.parametrize("drawn", found, ids=[f"seed{example.seed}" for example in found], indirect=True)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, None]:
    """Print below a failed test how to repeat the test."""
    report = (yield).get_result()
    example = _example(item)
    if report.failed and example:
        again = f'pytest "{item.nodeid}" --gradcheck-seed {example.seed}'
        report.sections.append(("how to repeat it", f"{again}\n"))


def _examples(config: pytest.Config, spec: str, *, examples: int = 25, seed: int = 0, **how: Any) -> list[Example]:
    """The examples of a marker; options of the command line replace its seeds and their number."""
    _of("spec").parse(spec)  # a mistake in the marker is an error here, not in every example
    inspect.signature(_of("spec").draw_example).bind(spec, seed, **how)
    only, instead = config.getoption("gradcheck_seed"), config.getoption("gradcheck_examples")
    seeds = range(seed, seed + (examples if instead is None else instead)) if only is None else [only]
    return [Example(spec, seed, how) for seed in seeds]


def _example(node: Any) -> Example | None:
    params: dict[str, Any] = getattr(getattr(node, "callspec", None), "params", {})
    example = params.get("drawn")
    return example if isinstance(example, Example) else None


def _of(module: str) -> Any:
    return importlib.import_module(f"numpy_attention.gradcheck.{module}")
