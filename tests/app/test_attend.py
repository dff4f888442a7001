"""`attend`: the picture of a trained model's attention from the command line."""

import sys
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

TEXT = "The quick brown fox jumps over the lazy dog.\n" * 30
SIZES = [
    "--layers=2", "--heads=2", "--d-model=16", "--context=8", "--batch=4", "--workers=1", "--steps=2", "--eval-every=2",
]  # fmt: skip


@pytest.fixture(scope="module")
def dates_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attend") / "dates"
    sizes = [option for option in SIZES if not option.startswith("--context")]
    trained("--task", "dates", "--out", folder, *sizes)
    return folder


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attend")
    (folder / "text.txt").write_text(TEXT, encoding="utf-8")
    trained("--text", folder / "text.txt", "--out", folder / "run", *SIZES)
    return folder / "run"


def test_without_a_model_attend_draws_the_small_gpt_in_this_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(FOLDER.iterdir())
    assert main(["attend", "--layer", "2", "--head", "1"]) == 0
    printed = capsys.readouterr()
    assert (tmp_path / "attention.png").read_bytes().startswith(b"\x89PNG")
    assert sorted(FOLDER.iterdir()) == before, "nothing is written into the package"
    assert printed.err == NO_MODEL_NAMED + "\n"
    assert "'The value of the expression is'" in printed.out
    assert "--text is required" in refused(capsys, "attend", FOLDER)


def test_attend_draws_every_head_with_characters_as_labels(
    run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append((figure, path)))
    assert main(["attend", str(run_directory), "--text", "The dog", "--out", str(tmp_path / "a.svg")]) == 0
    (figure, path), = drawn
    panels = {axes.get_title(): axes for axes in figure.axes if axes.get_title()}
    assert list(panels) == [f"blocks.{layer}.attention, head {head}" for layer in (0, 1) for head in (0, 1)]
    for axes in panels.values():
        assert [label.get_text() for label in axes.get_yticklabels()] == list("The␣dog")
        weights = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
        assert np.all(weights[np.triu_indices(7, 1)] == 0.0), "a GPT does not look ahead"
    assert path == tmp_path / "a.svg"
    assert str(path) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "titles"),
    [(["--layer", "1"], ["head 0", "head 1"]), (["--layer", "1", "--head", "0"], ["blocks.1.attention, head 0"])],
)
def test_attend_draws_one_layer_or_one_head(
    run_directory: Path, options: list[str], titles: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    assert main(["attend", str(run_directory), "--text", "fox", *options]) == 0
    assert [axes.get_title() for axes in drawn[0].axes if axes.get_title()] == titles


def test_attend_draws_cross_attention_of_a_translation(
    dates_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn = []
    written = np.array([3, 12, 13, 4, STOP])
    monkeypatch.setattr(na.Seq2Seq, "greedy", lambda self, *_: [written])  # the weights stay the model's own
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append(figure))
    capsys.readouterr()
    assert main(["attend", str(dates_directory), "--text", "4 May 1999", "--out", str(tmp_path / "a.png")]) == 0
    assert "'4 May 1999' -> '09-1'" in capsys.readouterr().out
    panels = {axes.get_title(): axes for axes in drawn[0].axes if axes.get_title()}
    names = [f"decoder.blocks.{layer}.cross_attention" for layer in (0, 1)]
    assert list(panels) == [f"{name}, head {head}" for name in names for head in (0, 1)]
    for axes in panels.values():
        assert [label.get_text() for label in axes.get_yticklabels()] == ["0", "9", "-", "1", "stop"]
        assert [label.get_text() for label in axes.get_xticklabels()] == list("4␣May␣1999")
    source, _, _ = encode_dates([("4 May 1999", "1999-05-04")])
    model = make_task(load_run(dates_directory)[0]).model(None)
    read_into(model.parameters(), load_run(dates_directory)[1], "parameters.", "model")
    weights = model.attention_weights(source, np.array([[START, 3, 12, 13, 4]]))  # each row before its own character
    image = panels["decoder.blocks.1.cross_attention, head 1"].images[0].get_array()
    np.testing.assert_array_equal(image, weights[names[1]][0, 1])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("4 May 1999!", "unknown to the model: '!'"),
        ("on Wednesday the twenty third of September", "unknown to the model: 'w'"),
        ("on the " * 6, "42 characters long; the model reads at most 36"),
    ],
)
def test_refuses_unreadable_date_in_one_line(
    dates_directory: Path, text: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "attend", dates_directory, "--text", text)


def test_error_names_a_model_that_reads_no_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--layers=1", "--heads=1", "--d-model=8", "--batch=4", "--workers=1", "--steps=1", "--eval-every=1"]
    trained("--task", "sum", "--out", tmp_path / "run", *small)
    capsys.readouterr()
    message = "the task 'sum'; only models of the tasks 'text' and 'dates' can read --text"
    assert message in refused(capsys, "attend", tmp_path / "run", "--text", "1 + 1")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--text", ""], "at least one character"),
        (["--text", "The quick"], "9 characters long; the model reads at most 8"),
        (["--text", "fox 42"], "unknown to the model: '2', '4'"),
        (["--text", "fox", "--layer", "2"], "--layer must be from 0 to 1, got 2"),
        (["--text", "fox", "--layer", "0", "--head", "-1"], "--head must be from 0 to 1, got -1"),
        (["--text", "fox", "--head", "0"], "needs --layer"),
        (["--text", "fox", "--out", "/no/such/folder/a.png"], "cannot write /no/such/folder/a.png"),
        (["--text", "fox", "--out", "folder"], "--out must end in .png, .svg or .pdf, got folder"),
        (["--text", "fox", "--out", "a.gif.nothing"], "--out must end in .png, .svg or .pdf, got a.gif.nothing"),
        (["--text", "fox", "--out", "a" * 300 + ".png"], "File name too long"),
        (["--text", "fox", "--out", "a.pgf"], "--out must end in .png, .svg or .pdf, got a.pgf"),
        ([], "--text"),
    ],
)
def test_refuses_undrawable_arguments_in_one_line(
    run_directory: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in refused(capsys, "attend", run_directory, *options)


def test_without_matplotlib_the_error_names_the_package(
    run_directory: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert "pip install 'numpy-attention[plots]'" in refused(capsys, "attend", run_directory, "--text", "fox")


def panels_of(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[dict[str, Any], Any, Path]:
    """What `attend` draws: the panels by their titles, the figure, and where it was to be written."""
    drawn = []
    monkeypatch.setattr(plots, "save", lambda figure, path: drawn.append((figure, path)))
    assert main(["attend", *arguments]) == 0
    (figure, path), = drawn
    return {axes.get_title(): axes for axes in figure.axes if axes.get_title()}, figure, path


def test_attend_draws_pretrained_gpt_with_tokens_as_labels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tiny.write(tmp_path, "llama gguf")
    panels, _, path = panels_of(monkeypatch, str(at), "--text", "the user in<|im_end|>")
    model, tokenizer = load_pretrained(at)
    ids = tokenizer.encode("the user in<|im_end|>")
    assert len(panels) == model.config.num_layers * model.config.num_heads
    for axes in panels.values():
        labels = [label.get_text() for label in axes.get_yticklabels()]
        assert labels[:4] == ["the", "\u2423", "user", "\u2423"]
        assert labels[-10:] == list("<|im_end|>"), "typed, so not the special token"
    weights = model.attention_weights(ids[None])["blocks.1.attention"]
    np.testing.assert_array_equal(panels["blocks.1.attention, head 5"].images[0].get_array(), weights[0, 5])
    assert path == Path("attention.png"), "nothing is written beside a model that is not ours"
    assert "2 layers" not in capsys.readouterr().out


def test_attend_draws_text_encoder_with_special_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    panels, _, _ = panels_of(monkeypatch, str(tiny.write(tmp_path, "bert")), "--text", "the rains", "--layer", "1")
    assert list(panels) == ["head 0", "head 1", "head 2"]
    for axes in panels.values():
        assert [label.get_text() for label in axes.get_yticklabels()] == ["[CLS]", "the", "rain", "##s", "[SEP]"]
        weights = np.asarray(axes.images[0].get_array())
        np.testing.assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-5)
        assert np.all(weights > 0.0), "an encoder looks both ways"


def test_with_many_heads_attend_draws_the_layer_that_looks_least_at_the_first_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tiny.folder(tiny.TIED | {"num_hidden_layers": 7})(tmp_path, "deep")
    model, tokenizer = load_pretrained(at)
    weights = model.attention_weights(tokenizer.encode("the user in")[None])
    to_the_first = {name: w[0, :, :, 0].mean() for name, w in weights.items()}
    name = min(to_the_first, key=lambda name: to_the_first[name])
    panels, figure, _ = panels_of(monkeypatch, str(at), "--text", "the user in")
    assert list(panels) == [f"head {head}" for head in range(6)]
    assert figure.get_suptitle() == name
    np.testing.assert_array_equal(panels["head 2"].images[0].get_array(), weights[name][0, 2])
    out = capsys.readouterr().out
    assert f"{name} 6 heads (of 7 layers, this one looks least at the first token; --layer draws another)" in out
    panels, _, _ = panels_of(monkeypatch, str(at), "--text", "the user in", "--layer", "6", "--head", "1")
    assert list(panels) == ["blocks.6.attention, head 1"]
    assert "blocks.6.attention head 1\n" in capsys.readouterr().out


def test_pretrained_model_refuses_text_too_long_to_read_or_draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tiny.write(tmp_path, "bert")
    assert "18 tokens long; the model reads at most 15" in refused(capsys, "attend", at, "--text", "rain " * 16)
    at = tiny.write(tmp_path, "gpt2 gguf")
    assert "513 tokens long; a picture of more than 512" in refused(capsys, "attend", at, "--text", "?" * 513)
    assert "--layer must be from 0 to 2, got 3" in refused(capsys, "attend", at, "--text", "?", "--layer", "3")
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    assert "python -m numpy_attention fetch minilm" in refused(capsys, "attend", "minilm", "--text", "?")


def test_attend_draws_a_fine_tuned_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "text.txt").write_text(TEXT, encoding="utf-8")
    start, run = tiny.write(tmp_path, "llama"), tmp_path / "run"
    steps = ["--lora=2", "--steps=1", "--eval-every=1", "--batch=2", "--context=9", "--workers=1"]
    trained("--from", start, "--text", tmp_path / "text.txt", "--out", run, *steps)
    panels, _, path = panels_of(monkeypatch, str(run), "--text", "the user")
    assert len(panels) == 2 * 6
    assert path == run / "attention.png"


def test_refuses_weights_that_overflow(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tiny.write_overflowing(tmp_path, tiny.GPT2)
    message = refused(capsys, "attend", folder, "--text", "rain", "--out", tmp_path / "a.png")
    assert "attend: the attention of blocks.0.attention is nan at [0, 0, 0, 0]: the weights are too large" in message
    assert not (tmp_path / "a.png").exists()


def test_picture_is_written_to_the_run_directory_and_follows_no_link(run_directory: Path, tmp_path: Path) -> None:
    victim, picture = tmp_path / "victim", run_directory / "attention.png"
    victim.write_text("keep me")
    picture.unlink(missing_ok=True)
    picture.symlink_to(victim)
    assert main(["attend", str(run_directory), "--text", "fox"]) == 0
    assert victim.read_text("utf-8") == "keep me"
    assert not picture.is_symlink()
    assert picture.read_bytes().startswith(b"\x89PNG")
    picture.unlink()


@pytest.mark.parametrize("ending", [".png", ".pdf"])
def test_failed_write_keeps_the_old_picture(
    ending: str, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    def full(self: Any, path: Path, **_: Any) -> None:
        Path(path).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("matplotlib.figure.Figure.savefig", full)
    old, new = tmp_path / f"old{ending}", tmp_path / f"new{ending}"
    old.write_text("good")
    for out in (old, new):
        assert "No space left on device" in refused(capsys, "attend", run_directory, "--text", "fox", "--out", out)
    assert [path.name for path in tmp_path.iterdir()] == [old.name]
    assert old.read_text("utf-8") == "good"
