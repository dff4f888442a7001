"""The plugin records for each test its seconds and the called functions of the package, by their place."""

from pathlib import Path
from types import SimpleNamespace

from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.runs.config import make_optimizer, option
from tests.mutations.reach import Reach, place_of


def test_place_of_a_function_is_the_place_of_its_mutations() -> None:
    assert place_of(make_optimizer.__code__) == "runs/config.make_optimizer"
    assert place_of(GPTConfig.hidden_width.__code__) == "models/gpt_config.GPTConfig.hidden_width"
    assert place_of(test_place_of_a_function_is_the_place_of_its_mutations.__code__) == ""


def test_reach_contains_only_called_functions(tmp_path: Path) -> None:
    reach = Reach(tmp_path / "reach.json")
    for name, call in (("first", lambda: option("low")), ("second", lambda: None)):
        protocol = reach.pytest_runtest_protocol(SimpleNamespace(nodeid=name))
        next(protocol)
        call()
        next(protocol, None)
    functions = {name: recorded["functions"] for name, recorded in reach.tests.items()}
    assert functions == {"first": ["runs/config.option"], "second": []}
