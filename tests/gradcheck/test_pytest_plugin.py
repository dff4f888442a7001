"""The plugin, tested in a separate pytest: examples become tests, and a failure prints how to repeat it."""

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "numpy_attention.gradcheck.pytest_plugin")
ROOT = Path(__file__).parents[2]
SCALE = """
    import numpy as np
    import pytest

    def scale(x, w):
        return x * w, (x, w)

    def scale_backward(dy, cache):
        x, w = cache
        return dy * w, (dy * x).reshape(-1, w.size).sum(0)

    def wrong_at_zero(dy, cache):
        x, w = cache
        dx, dw = scale_backward(dy, cache)
        return np.where(x == 0, 2 * dx, dx), dw
"""


@pytest.fixture
def mine(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project without warnings and unknown markers, whose subprocesses find the package."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # other installed plugins cost seconds
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    pytester.makeini("[pytest]\nfilterwarnings = error\naddopts = --strict-markers --strict-config\n")
    return pytester


def write(mine: pytest.Pytester, test: str) -> None:
    source = "\n".join(line[4:] for line in SCALE.splitlines()) + "\n" + test
    mine.makepyfile(test_mine=source)


RIGHT = """
@pytest.mark.gradcheck("x: ... d, w: d", examples=7)
def test_scale(gradcheck, drawn):
    gradcheck(scale, scale_backward, drawn)
"""
WRONG = RIGHT.replace("scale_backward", "wrong_at_zero").replace("7", "9")


def test_each_example_is_a_test_named_by_its_seed(mine: pytest.Pytester) -> None:
    write(mine, RIGHT)
    result = mine.runpytest(*PLUGIN, "-v")
    result.assert_outcomes(passed=7)
    names = re.findall(r"test_scale\[(.*?)\]", result.stdout.str())
    assert names == [f"seed{i}" for i in range(7)]
    mine.runpytest(*PLUGIN, "-k", "seed3").assert_outcomes(passed=1, deselected=6)


@pytest.mark.slow
def test_a_failure_prints_the_command_that_repeats_it(mine: pytest.Pytester) -> None:
    write(mine, WRONG)
    result = mine.runpytest(*PLUGIN)
    counts = result.parseoutcomes()
    assert counts["failed"] >= 2
    assert counts["passed"] >= 2
    message = result.stdout.str()
    assert "GradientError: gradcheck scale: dx wrong" in message
    assert not re.search(r"(check|plugin)\.py:", message), "the way through the checker is hidden"
    node, seed = re.findall(r'pytest "(.*)" --gradcheck-seed (\d+)', message)[-1]
    result = mine.runpytest(*PLUGIN, node, "--gradcheck-seed", seed)
    result.assert_outcomes(failed=1)


def test_the_command_line_chooses_seed_and_number(mine: pytest.Pytester) -> None:
    write(mine, RIGHT)
    result = mine.runpytest(*PLUGIN, "-v", "--gradcheck-seed", "1234")
    result.assert_outcomes(passed=1)
    assert "seed1234" in result.stdout.str()
    mine.runpytest(*PLUGIN, "--gradcheck-examples", "3").assert_outcomes(passed=3)


def test_the_marker_passes_on_sizes_and_dtypes(mine: pytest.Pytester) -> None:
    write(mine, """
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.gradcheck(
    "x: ... d, w?: d", examples=2, seed=9, fixed={"d": 3, "...": 2}, dtype=np.float32, special=False,
)
def test_options(drawn, sign):
    assert drawn["x"].shape == (2, 3)
    assert drawn["x"].dtype == np.float32
    assert drawn.seed in (9, 10)
    assert not drawn.special
""")
    result = mine.runpytest(*PLUGIN, "-v")
    result.assert_outcomes(passed=4)
    assert "seed10-" in result.stdout.str()


def test_functions_and_layers_and_a_test_without_a_spec(mine: pytest.Pytester) -> None:
    write(mine, """
def test_vjp(gradcheck):
    assert gradcheck.vjp(np.sin, lambda dy, x: dy * np.cos(x), (np.ones(3),), seed=5).seed == 5

def test_keywords(gradcheck):
    def wrong(dy, x):
        return np.clip(dy, -3, 3) * np.where(x == 2, np.nan, np.cos(x))

    x = np.arange(4.0)
    report = gradcheck.vjp(np.sin, wrong, (x,), robustness=["sizes"], skip={"x": x == 2})
    assert "robustness was not checked: repeated, memory" in str(report)
    with pytest.raises(AssertionError, match="not linear"):
        gradcheck.vjp(np.sin, wrong, (x,), skip={"x": x == 2})

def test_layer(gradcheck):
    from numpy_attention import Linear
    layer = Linear(3, 2, np.random.default_rng(0), dtype=np.float64)
    assert gradcheck.layer(layer, {"x": np.ones((4, 3))}).seed == 0
""")
    mine.runpytest(*PLUGIN).assert_outcomes(passed=3)


@pytest.mark.parametrize(("marker", "message"), [
    ('"x: poistive d"', "did you mean positive?"), ('"x: d", exmples=3', "unexpected keyword argument 'exmples'"),
])
def test_a_mistake_in_the_marker_is_one_line(mine: pytest.Pytester, marker: str, message: str) -> None:
    write(mine, f"@pytest.mark.gradcheck({marker})\ndef test_it(drawn): pass\n")
    result = mine.runpytest(*PLUGIN)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([f"test_it: @pytest.mark.gradcheck: *{message}*"])
    assert "Traceback" not in result.stdout.str()
    assert "During handling" not in result.stdout.str()


def test_marker_and_argument_are_needed_together(mine: pytest.Pytester) -> None:
    write(mine, '@pytest.mark.gradcheck("x: d")\ndef test_it(gradcheck): pass\n')
    mine.runpytest(*PLUGIN).stdout.fnmatch_lines(["test_it: *use them: def test_it(gradcheck, drawn)"])
    write(mine, "def test_it(drawn): pass\n")
    mine.runpytest(*PLUGIN).stdout.fnmatch_lines(["test_it: drawn needs a marker with a spec: *"])
