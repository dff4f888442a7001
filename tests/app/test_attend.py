"""`attend`: the picture of a model's attention from the command line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention import plots
from numpy_attention.app.main import main
from numpy_attention.app.tasks import make_task
from numpy_attention.files import read_into
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.shipped import FOLDER, NO_MODEL_NAMED
from numpy_attention.training.restore import load_run
from numpy_attention.training.tasks.dates import START, STOP, encode_dates
from tests.app.commands import refused, trained
from tests.pretrained import tiny

SIZES = ["--layers=2", "--heads=2", "--d-model=16", "--batch=4", "--workers=1", "--steps=1", "--eval-every=1"]
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def dates_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attend") / "dates"
    trained("--task", "dates", "--out", folder, *SIZES)
    return folder


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attend")
    (folder / "text.txt").write_text("The quick brown fox jumps over the lazy dog.\n" * 30, encoding="utf-8")
    trained("--text", folder / "text.txt", "--out", folder / "run", "--context=8", *SIZES)
    return folder / "run"


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


def test_without_a_model_attend_draws_the_small_gpt_in_this_folder(
    draw: Draw, capsys: Captured
) -> None:
    panels, path = draw("--layer", "2", "--head", "1")
    printed = capsys.readouterr()
    assert list(panels) == ["blocks.2.attention, head 1"]
    assert path == Path("attention.png")
    assert printed.err == NO_MODEL_NAMED + "\n"
    assert printed.out == "attention.png: 'The value of the expression is', blocks.2.attention head 1\n"
    assert "--text is required" in refused(capsys, "attend", FOLDER)


def test_attend_draws_every_head_with_characters_as_labels(run_directory: Path, draw: Draw, capsys: Captured) -> None:
    panels, path = draw(run_directory, "--text", "The dog")
    assert list(panels) == [f"blocks.{layer}.attention, head {head}" for layer in (0, 1) for head in (0, 1)]
    for axes in panels.values():
        assert ticks(axes.yaxis) == list("The␣dog")
        weights = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
        assert np.all(weights[np.triu_indices(7, 1)] == 0.0), "a GPT does not look ahead"
    assert path == run_directory / "attention.png"
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "titles"),
    [(["--layer", "1"], ["head 0", "head 1"]), (["--layer", "1", "--head", "0"], ["blocks.1.attention, head 0"])],
    ids=["layer", "head"],
)
def test_attend_draws_one_layer_or_one_head(
    run_directory: Path, draw: Draw, options: list[str], titles: list[str], tmp_path: Path
) -> None:
    panels, path = draw(run_directory, "--text", "fox", "--out", tmp_path / "a.svg", *options)
    assert list(panels) == titles
    assert path == tmp_path / "a.svg"


def test_attend_draws_cross_attention_of_a_translation(
    dates_directory: Path, draw: Draw, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    written = np.array([3, 12, 13, 4, STOP])
    monkeypatch.setattr(na.Seq2Seq, "greedy", lambda self, *_: [written])  # the weights stay the model's own
    panels, _ = draw(dates_directory, "--text", "4 May 1999")
    assert "'4 May 1999' -> '09-1'" in capsys.readouterr().out
    names = [f"decoder.blocks.{layer}.cross_attention" for layer in (0, 1)]
    assert list(panels) == [f"{name}, head {head}" for name in names for head in (0, 1)]
    axes = panels["decoder.blocks.1.cross_attention, head 1"]
    assert (ticks(axes.yaxis), ticks(axes.xaxis)) == (["0", "9", "-", "1", "stop"], list("4␣May␣1999"))
    source, _, _ = encode_dates([("4 May 1999", "1999-05-04")])
    config, arrays, _ = load_run(dates_directory)
    model = make_task(config).model(None)
    read_into(model.parameters(), arrays, "parameters.", "model")
    weights = model.attention_weights(source, np.array([[START, 3, 12, 13, 4]]))  # each row before its own character
    np.testing.assert_array_equal(axes.images[0].get_array(), weights[names[1]][0, 1])


def test_attend_draws_text_encoder_with_special_tokens_in_this_folder(tmp_path: Path, draw: Draw) -> None:
    panels, path = draw(tiny.write(tmp_path, "bert"), "--text", "the rains", "--layer", "1")
    assert list(panels) == ["head 0", "head 1", "head 2"]
    assert ticks(panels["head 0"].yaxis) == ["[CLS]", "the", "rain", "##s", "[SEP]"]
    assert path == Path("attention.png"), "nothing is written beside a model that is not ours"


def test_with_many_heads_attend_draws_the_layer_that_looks_least_at_the_first_token(
    tmp_path: Path, draw: Draw, capsys: Captured
) -> None:
    at = tiny.folder(tiny.TIED | {"num_hidden_layers": 7})(tmp_path, "deep")
    model, tokenizer = load_pretrained(at)
    weights = model.attention_weights(tokenizer.encode("the user in")[None])
    to_the_first = {name: w[0, :, :, 0].mean() for name, w in weights.items()}
    name = min(to_the_first, key=lambda name: to_the_first[name])
    panels, _ = draw(at, "--text", "the user in")
    assert list(panels) == [f"head {head}" for head in range(6)]
    np.testing.assert_array_equal(panels["head 2"].images[0].get_array(), weights[name][0, 2])
    out = capsys.readouterr().out
    assert f"{name} 6 heads (of 7 layers, this one looks least at the first token; --layer draws another)" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", ""], "at least one character"),
        (["--text", "The quick"], "9 characters long; the model reads at most 8"),
        (["--text", "fox 42"], "unknown to the model: '2', '4'"),
        (["--text", "fox", "--layer", "2"], "--layer must be from 0 to 1, got 2"),
        (["--text", "fox", "--layer", "0", "--head", "-1"], "--head must be from 0 to 1, got -1"),
        (["--text", "fox", "--head", "0"], "needs --layer"),
        (["--text", "f", "--layer", "0", "--head", "0", "--out", "/no/a.png"], "cannot write to /no/a.png"),
        (["--text", "fox", "--out", "a.gif"], "--out must end in .png, .svg or .pdf, got a.gif"),
        ([], "--text"),
    ],
)
def test_refuses_undrawable_arguments_in_one_line(
    run_directory: Path, options: list[str], message: str, capsys: Captured
) -> None:
    assert message in refused(capsys, "attend", run_directory, *options)


def test_refuses_texts_that_a_model_cannot_read(dates_directory: Path, tmp_path: Path, capsys: Captured) -> None:
    def message(model: Path, text: str) -> str:
        return refused(capsys, "attend", model, "--text", text, "--out", tmp_path / "a.png")

    assert "unknown to the model: '!'" in message(dates_directory, "4 May 1999!")
    assert "42 characters long; the model reads at most 36" in message(dates_directory, "on the " * 6)
    assert "18 tokens long; the model reads at most 15" in message(tiny.write(tmp_path, "bert"), "rain " * 16)
    assert "513 tokens long; a picture of more than 512" in message(tiny.write(tmp_path, "gpt2 gguf"), "?" * 513)
    assert "each number must be finite, got nan" in message(tiny.write_overflowing(tmp_path, tiny.GPT2), "rain")
    trained("--task", "sum", "--out", tmp_path / "run", *SIZES)
    capsys.readouterr()
    assert "a model of the task 'sum'; only those of text and dates read a text" in message(tmp_path / "run", "1 + 1")


def test_without_matplotlib_the_error_names_the_package(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'numpy-attention[plots]'" in refused(capsys, "attend", run_directory, "--text", "fox")
