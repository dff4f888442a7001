"""text: every vocabulary."""

import hashlib

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import make_task
from numpy_attention.training.c27_data import read_text
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.restore import load_run
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


@pytest.mark.slow
@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("settings", VOCABULARIES, ids=lambda settings: settings["vocabulary"])
def test_checkpoint_holds_the_vocabulary_so_sample_needs_no_text(tmp_path, text, capsys, settings):
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    sizes = ["--layers=1", "--heads=2", "--d-model=16", "--context=8", "--batch=4", "--workers=1", "--steps=4"]
    assert main(["train", "--text", text, "--out", str(tmp_path / "run"), *sizes, *options]) == 0
    out = capsys.readouterr().out
    assert "nats per character" in out
    assert ("val_loss_per_character" in out) == (settings["vocabulary"] != "char")
    with open(text, "w", encoding="utf-8") as file:
        file.write("quite another text")
    assert main(["sample", str(tmp_path / "run"), "--prompt", "fish ", "--tokens", "12"]) == 0
    assert capsys.readouterr().out.startswith("fish ")
    config, _, meta = load_run(tmp_path / "run")
    assert config.vocabulary == settings["vocabulary"]
    assert meta["model"]["vocab_size"] == {"char": 16, "byte": 256, "bpe": 270}[config.vocabulary]


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
