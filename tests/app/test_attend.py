"""`attend`: the picture of a model's attention from the command line."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numpy_attention import plots
from numpy_attention.app.main import main
from numpy_attention.pretrained.c36_load import load_pretrained
from numpy_attention.pretrained.shipped import NO_MODEL_NAMED, shipped
from tests.pretrained import tiny

Captured = pytest.CaptureFixture[str]
Draw = Callable[..., tuple[dict[str, Any], Path]]


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Draw:
    """A function that runs `attend` and returns the panels by their titles and the path of the picture."""

    def draw(*arguments: object) -> tuple[dict[str, Any], Path]:
        drawn = []
        monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append((figure, path)))
        assert main(["attend", *map(str, arguments)]) == 0
        ((figure, path),) = drawn
        return {axes.get_title(): axes for axes in figure.axes if axes.get_title()}, path

    return draw


def ticks(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_without_a_model_attend_draws_the_small_gpt_in_this_folder(draw: Draw, capsys: Captured) -> None:
    panels, path = draw("--layer", "2", "--head", "1")
    printed = capsys.readouterr()
    assert list(panels) == ["blocks.2.attention, head 1"]
    assert path == Path("attention.png")
    assert printed.err == NO_MODEL_NAMED + "\n"
    assert printed.out == "attention.png: blocks.2.attention, head 1 for 'The value of the expression is'\n"


def test_attend_draws_the_heads_of_a_layer_with_characters_as_labels(draw: Draw, tmp_path: Path) -> None:
    panels, path = draw("--text", "The dog", "--layer", "1", "--out", tmp_path / "a.svg")
    model, vocabulary = shipped()
    weights = model.attention_weights(vocabulary.encode("The dog")[None])["blocks.1.attention"][0]
    assert list(panels) == [f"head {head}" for head in range(len(weights))]
    for axes, expected in zip(panels.values(), weights, strict=True):
        assert ticks(axes.yaxis) == list("The␣dog")
        np.testing.assert_array_equal(axes.images[0].get_array(), expected)
    assert path == tmp_path / "a.svg"


def test_without_layer_attend_draws_the_layer_that_looks_least_at_the_first_token(
    tmp_path: Path, draw: Draw, capsys: Captured
) -> None:
    at = tiny.folder(tiny.TIED | {"num_hidden_layers": 7})(tmp_path, "deep")
    model, tokenizer = load_pretrained(at)
    weights = model.attention_weights(tokenizer.encode("the user in")[None])
    to_the_first = {name: w[0, :, :, 0].mean() for name, w in weights.items()}
    name = min(to_the_first, key=lambda name: to_the_first[name])
    panels, _ = draw(at, "--text", "the user in")
    np.testing.assert_array_equal(panels["head 2"].images[0].get_array(), weights[name][0, 2])
    assert f"{name} for 'the user in'" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", ""], "at least one character"),
        (["--text", "?" * 257], "--text is 257 tokens long; at most 256 are possible"),
        (["--layer", "4"], "--layer must be from 0 to 3, got 4"),
        (["--head", "0"], "--head 0 needs --layer: every layer has its own head 0"),
        (["--text", "f", "--layer", "0", "--head", "0", "--out", "/no/a.png"], "cannot read or write /no/"),
        (["--text", "f", "--layer", "0", "--head", "0", "--out", "a.xyz"], "'xyz' is not supported"),
    ],
)
def test_refuses_undrawable_arguments_in_one_line(options: list[str], message: str, capsys: Captured) -> None:
    assert main(["attend", *options]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 2)  # the first line says that no model is given
    assert message in err


def test_attend_draws_text_encoder_with_special_tokens(tmp_path: Path, draw: Draw) -> None:
    panels, _ = draw(tiny.write(tmp_path, "bert"), "--text", "the rains", "--layer", "1")
    assert list(panels) == ["head 0", "head 1", "head 2"]
    assert ticks(panels["head 0"].yaxis) == ["[CLS]", "the", "rain", "##s", "[SEP]"]
