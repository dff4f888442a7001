"""Runs saved by an older version of this package still load, resume, and end with the same numbers.

`before_the_move` holds runs of 8 steps, stopped after 4, and in `end.npz` the parameters that the version which saved
them ended with: a GPT on text.txt, a sequence classifier, an encoder-decoder.
"""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import numpy_attention as na
from tests.app.commands import trained

RUNS = Path(__file__).parent / "before_the_move"
MODELS = {"text": na.GPT, "sum": na.SequenceClassifier, "copy": na.Seq2Seq}


@pytest.mark.parametrize("run", MODELS)
def test_run_saved_by_an_older_version_resumes_to_the_same_end(
    run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = Path(shutil.copytree(RUNS / run, tmp_path / run))
    shutil.copy(RUNS / "text.txt", tmp_path)
    monkeypatch.chdir(tmp_path)
    trained("--resume", run)

    found = MODELS[run].load(directory / "checkpoint.npz").parameters()
    expected = dict(np.load(RUNS / run / "end.npz"))
    assert found.keys() == expected.keys()
    rate = json.loads((directory / "config.json").read_text("utf-8"))["learning_rate"]
    for name, p in expected.items():
        # other machines round otherwise; and the gradient of b_k is rounding alone, which Adam makes steps of
        atol = 4 * rate if name.endswith("b_k") else 1e-5
        np.testing.assert_allclose(found[name], p, rtol=1e-3, atol=atol, err_msg=name)
    steps = [json.loads(line)["step"] for line in (directory / "log.jsonl").read_text("utf-8").splitlines()]
    assert steps == list(range(1, 9))
