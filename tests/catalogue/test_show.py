"""The printed gallery: one paragraph for each mistake, then one line for each weaker check."""

import io

import pytest

from numpy_attention.catalogue import GALLERY, show
from numpy_attention.catalogue.weaker import WEAKER


@pytest.fixture
def two_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "GALLERY", {name: GALLERY[name] for name in ("zero", "bias_averaged")})
    monkeypatch.setattr(show, "WEAKER", [weakness for weakness in WEAKER if weakness.name == "dy of ones"])


@pytest.mark.usefixtures("two_mistakes")
def test_prints_all_mistakes_and_the_misses_of_weaker_checks() -> None:
    out = io.StringIO()
    assert show.print_gallery(out) == 0
    text = out.getvalue()
    assert "bias_averaged  caught  linear" in text
    assert "zero           caught  softmax" in text
    assert GALLERY["zero"].hides.split(".")[0] in " ".join(text.split())
    assert "2 of 2 caught by the full check" in text
    assert text.splitlines()[-3].split() == ["dy", "of", "ones", "1", "of", "2"]
    assert text.splitlines()[-2].strip() == "zero"


@pytest.mark.usefixtures("two_mistakes")
def test_counts_missed_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(show, "catch", lambda mistake, weakness=None: "" if mistake.name == "zero" else "caught")
    out = io.StringIO()
    assert show.print_gallery(out) == 1
    assert "zero           MISSED  softmax" in out.getvalue()
