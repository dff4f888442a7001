"""The small GPT that comes with the book: it is the run that its log and its settings say, and it speaks."""

import dataclasses
import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from numpy_attention.cli import main
from numpy_attention.cli.attend import TEXT
from numpy_attention.pretrained.shipped import FOLDER, shipped
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.restore import load_run, text_model
from numpy_attention.runs.trainer import Trainer
from numpy_attention.tasks import make_task
from numpy_attention.training.data import consecutive_blocks, default_text, split_text
from tests.pretrained import make_shipped


def its_log() -> list[dict[str, float]]:
    return [json.loads(line) for line in (FOLDER / "log.jsonl").read_text().splitlines()]


def test_it_is_the_default_run_in_less_than_two_million_bytes() -> None:
    config, arrays, meta = load_run(FOLDER)
    assert dataclasses.replace(config, workers=0) == TrainConfig()
    assert meta["step"] == config.steps == its_log()[-1]["step"]
    assert all(array.dtype == np.float16 for array in arrays.values())
    assert sum(array.size for array in arrays.values()) == 806_528
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) < 2_000_000


def test_what_it_predicts_is_what_its_log_says() -> None:
    """On the held-out text; that of another Python is a little different, and may have characters of its own."""
    model, vocabulary = shipped()
    known = set(vocabulary.decode(np.arange(len(vocabulary))))
    text = "".join(c for c in default_text() if c in known)
    same_text = hashlib.sha256(text.encode()).hexdigest() == load_run(FOLDER)[2]["task"]["sha256"]
    _, held_out = split_text(vocabulary.encode(text))
    batches = list(consecutive_blocks(held_out, 256, 8))
    loss = np.average([model.loss(*batch)[0] for batch in batches], weights=[ids.size for ids, _ in batches])
    assert abs(loss - its_log()[-1]["val_loss"]) < (1e-3 if same_text else 0.1)


def test_it_has_learned_to_look_back_to_where_a_word_began() -> None:
    """The head of the README's picture: the letters of a word at the space before it."""
    model, vocabulary = shipped()
    weights = model.attention_weights(vocabulary.encode(TEXT)[None])["blocks.2.attention"][0, 1]
    places = {i: TEXT.rindex(" ", 0, i) for i, c in enumerate(TEXT) if c != " " and " " in TEXT[:i]}
    assert np.mean([weights[i, space] for i, space in places.items()]) > 0.5


def test_the_same_seed_begins_the_same_way(tmp_path: Path) -> None:
    """Ten steps of the same command, in float32; the text of another Python is a little different."""
    config, _, meta = load_run(FOLDER)
    trainer = Trainer(config, make_task(config), tmp_path)
    with trainer.workers:
        losses = [trainer.one_step()[0] for _ in range(10)]
    logged = {row["step"]: row["loss"] for row in its_log()}
    same_text = trainer.task.saved() == meta["task"]
    assert abs(losses[0] - logged[1]) < (1e-5 if same_text else 0.2)
    assert abs(losses[9] - logged[10]) < (1e-3 if same_text else 0.3)
    assert losses[9] < losses[0] - 0.5, "another beginning would be as near"


def test_it_is_made_of_a_run_by_leaving_out_what_only_training_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text").write_text("The quick brown fox jumps over the lazy dog.\n" * 30)
    sizes = ["--layers=1", "--heads=2", "--d-model=16", "--context=8", "--batch=2", "--steps=2", "--workers=1"]
    assert main(["train", "--text", str(tmp_path / "text"), "--out", str(tmp_path / "run"), *sizes]) == 0
    monkeypatch.setattr(make_shipped, "FOLDER", tmp_path / "shipped")
    make_shipped.make(tmp_path / "run")
    whole, rounded = (text_model(*load_run(tmp_path / name)[1:])[0].parameters() for name in ("run", "shipped"))
    for name, array in whole.items():
        assert rounded[name].dtype == array.dtype == np.float32
        np.testing.assert_allclose(rounded[name], array, rtol=2**-11, atol=2**-25)
    assert any(not np.array_equal(rounded[name], array) for name, array in whole.items())
