"""An empty name, such as that of a variable of the shell that is not set, is none."""

import os
from pathlib import Path

import pytest

from tests.cli.commands import refused


@pytest.mark.parametrize("option", ["--out", "--resume", "--config", "--text", "--from"])
def test_an_empty_name_is_not_the_folder_we_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    monkeypatch.chdir(tmp_path)
    err = refused(capsys, "train", option, "")
    assert option in err
    assert "''" in err
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("arguments", [["embed", "minilm", "", "--query=a"], ["attend", "--out", ""]], ids=" ".join)
def test_an_empty_name_is_told(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert "must be a name, got ''" in refused(capsys, *arguments)
