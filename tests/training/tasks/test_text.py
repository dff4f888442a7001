"""text: every vocabulary."""

import hashlib

import numpy as np
import pytest

from numpy_attention.app.tasks import make_task
from numpy_attention.training.c27_data import read_text
from numpy_attention.training.c30_parallel import Workers
from tests.app.commands import no_pictures
from tests.training.small_runs import text, trainer

__all__ = ["no_pictures", "text"]
VOCABULARIES = [{"vocabulary": "char"}, {"vocabulary": "byte"}, {"vocabulary": "bpe", "vocab_size": 270}]


@pytest.mark.parametrize("settings", VOCABULARIES, ids=lambda settings: settings["vocabulary"])
def test_fingerprint_is_of_the_text_that_is_trained_on(tmp_path, text, settings):
    task = trainer(tmp_path / "run", text, **settings).task
    read = task.vocabulary.decode(np.concatenate([task.training_ids, task.held_out_ids]))
    assert read == read_text(text)
    assert task.text_hash == hashlib.sha256(read.encode()).hexdigest()


@pytest.mark.parametrize("settings", VOCABULARIES[1:], ids=lambda settings: settings["vocabulary"])
def test_losses_of_other_vocabularies_are_also_reported_per_character(tmp_path, text, settings):
    config = trainer(tmp_path / "run", text, **settings).config
    task = make_task(config)
    uniform = type("Uniform", (), {"loss": lambda self, ids, targets: (np.log(256.0), None)})()
    with Workers(1) as workers:
        figures = task.evaluate(uniform, workers)
    spelled = task.vocabulary.decode(task.held_out_ids[1:])
    per_character = np.log(256.0) * (len(task.held_out_ids) - 1) / len(spelled)
    assert figures["val_loss"] == pytest.approx(np.log(256.0))
    assert figures["val_loss_per_character"] == pytest.approx(per_character)
