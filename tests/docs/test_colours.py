"""Pictures, diagrams and the interactive figure have the same colours, in the light and in the dark theme."""

import re
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from docs.diagrams.pen import DARK, LIGHT
from numpy_attention.app.plots import style

STATIC = Path(__file__).parents[2] / "docs" / "_static"


def rgb(colour: str) -> np.ndarray:
    return np.array(mpl.colors.to_rgb(colour))


@pytest.mark.parametrize(("n", "look"), [(0, LIGHT), (1, DARK), (2, DARK)], ids=["light", "dark", "system"])
def test_interactive_figure_is_blue_above_zero_and_orange_below(n: int, look: dict[str, str]) -> None:
    css = (STATIC / "fingers.css").read_text("utf-8")
    for sign, name in (("plus", "blue"), ("minus", "orange")):
        found = re.findall(rf"--{sign}: ([\d ]+);", css)
        assert len(found) == 3
        np.testing.assert_array_equal(np.array(found[n].split(), float), 255 * rgb(look[name]))


def test_interactive_figure_has_no_colour_at_zero() -> None:
    css = (STATIC / "fingers.css").read_text("utf-8")
    strengths = re.findall(r"background: rgb\(var\(--(?:plus|minus)\) / calc\((.*?)\)\);", css)
    assert strengths == 2 * ["var(--full) * var(--strength)"]


def test_cells_of_pictures_are_blue_above_zero_white_at_zero_and_orange_below() -> None:
    signed, weights = style.colour_map("a", style.ORANGE_TO_BLUE), style.colour_map("b", style.WHITE_TO_BLUE)
    for sign, colour in ((-1, LIGHT["orange"]), (0, "#ffffff"), (1, LIGHT["blue"])):
        np.testing.assert_allclose(signed((1 + sign) / 2)[:3], rgb(colour), atol=1 / 128)
    steps = np.linspace(0.0, 1.0, 9)
    np.testing.assert_allclose(weights(steps), signed((1 + steps) / 2), atol=1 / 64)  # a weight looks like any number


def test_dark_theme_turns_pictures_into_the_dark_colours_of_the_diagrams() -> None:
    css = (STATIC / "book.css").read_text("utf-8")
    share, *others = re.findall(r"filter: invert\(([\d.]+)\) hue-rotate\(180deg\);", css)
    assert others == [share], "one filter for the dark theme, the same for the system's setting"
    grey = np.broadcast_to([0.213, 0.715, 0.072], (3, 3))
    half_turn = 2 * grey - np.eye(3)  # hue-rotate(180deg), as CSS defines it
    for name, most in (("ground", 5), ("blue", 25), ("orange", 25), ("green", 25), ("purple", 25)):
        x = rgb(LIGHT[name])
        found = 255 * half_turn @ (float(share) * (1 - x) + (1 - float(share)) * x)
        np.testing.assert_allclose(found, 255 * rgb(DARK[name]), rtol=0, atol=most, err_msg=name)
