"""The style of all pictures: no pyplot, readable in grey, and the same file for the same figure."""

import subprocess
import sys
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from numpy_attention import plots
from numpy_attention.app.plots import style
from tests.app.pictures import lightness, one_of_each, weights_of

ROOT = Path(__file__).parents[2]


def test_every_picture_has_title_and_labels_and_draws_without_warning(rng: np.random.Generator) -> None:
    pictures = one_of_each(rng)
    assert set(pictures) == set(plots.__all__) - {"save"}
    for name, figure in pictures.items():
        figure.draw_without_rendering()
        assert hasattr(figure, "_repr_png_"), f"{name}: a notebook cannot display it"
        axes = figure.axes[0]
        assert axes.get_title() or figure.get_suptitle(), f"{name}: no title"
        assert axes.get_xlabel() or figure.get_supxlabel(), f"{name}: no label at the bottom"
        assert axes.get_ylabel() or figure.get_supylabel(), f"{name}: no label at the side"


def test_drawing_does_not_import_pyplot_or_change_settings(tmp_path: Path) -> None:
    code = (
        "import sys, matplotlib as mpl, numpy as np; before = dict(mpl.rcParams)\n"
        "from numpy_attention import plots\n"
        "plots.save(plots.attention_map(np.eye(3)), sys.argv[1])\n"
        "plots.save(plots.training_curves([{'step': 1, 'loss': 2.0}]), sys.argv[1])\n"
        "assert 'matplotlib.pyplot' not in sys.modules, 'pyplot was imported'\n"
        "assert dict(mpl.rcParams) == before, 'a setting changed'\n"
    )
    command = [sys.executable, "-W", "error", "-c", code, str(tmp_path / "out.png")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_matplotlib_is_loaded_only_with_the_first_picture() -> None:
    code = "import sys, numpy_attention as na; na.plots.attention_map; assert 'matplotlib' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


def test_without_matplotlib_the_error_names_the_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'numpy-attention\[plots\]'") as caught:
        plots.attention_map(np.eye(2))
    assert "\n" not in str(caught.value)


def test_pictures_do_not_depend_on_matplotlib_settings(rng: np.random.Generator) -> None:
    weights = weights_of(rng, 4, 4)
    plain = plots.attention_map(weights, list("abcd"))._repr_png_()  # as a notebook displays it
    assert plain.startswith(b"\x89PNG")
    with mpl.rc_context({"font.family": "monospace", "font.size": 31, "axes.titlesize": 40, "image.cmap": "jet"}):
        assert plots.attention_map(weights, list("abcd"))._repr_png_() == plain


def test_long_title_wraps_to_the_width(rng: np.random.Generator) -> None:
    figure = plots.attention_map(weights_of(rng, 3, 2), title="who looks at whom, in words without an end")
    figure.draw_without_rendering()
    box = figure.axes[0].title.get_window_extent()
    assert box.x0 >= 0.0
    assert box.x1 <= figure.bbox.width
    assert box.y1 <= figure.bbox.height


@pytest.mark.parametrize("colours", [style.WHITE_TO_BLUE, style.ORANGE_TO_BLUE[1::-1]], ids=["positive", "negative"])
def test_larger_numbers_are_darker_in_grey(colours: tuple[str, ...]) -> None:
    grey = lightness(style.colour_map("test", colours)(np.linspace(1.0, 0.0, 40)))
    assert np.all(np.diff(grey) > 0.0), "lightness must run one way"
    assert grey[-1] - grey[0] > 0.55


def test_lines_differ_in_more_than_colour(rng: np.random.Generator) -> None:
    steps = np.array([0.1, 0.01])
    axes = plots.step_error(steps, {str(n): rng.random(2) for n in range(5)}).axes[0]
    assert len({(line.get_marker(), str(line._dash_pattern)) for line in axes.lines}) == 5


def test_save_writes_the_format_of_the_file_ending(tmp_path: Path, rng: np.random.Generator) -> None:
    figure = plots.attention_map(weights_of(rng, 2, 2))
    assert plots.save(figure, tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in plots.save(figure, str(tmp_path / "a.svg")).read_bytes()
    with pytest.raises(ValueError, match="not supported"):
        plots.save(figure, tmp_path / "a.pngg")


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_same_figure_gives_the_same_file(ending: str, tmp_path: Path) -> None:
    first, second = (
        plots.save(plots.matrix_map(np.arange(6.0).reshape(2, 3)), tmp_path / f"{name}.{ending}").read_bytes()
        for name in ("first", "second")
    )
    assert first == second


def test_save_refuses_objects_that_are_not_figures(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="save: figure must be a Figure, such as the result of attention_map, got int"):
        plots.save(3, tmp_path / "x.png")
    assert not list(tmp_path.iterdir())
