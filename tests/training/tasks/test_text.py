"""text: every vocabulary, and texts whose ids are mapped from a file instead of held in memory."""

import hashlib

import numpy as np
import pytest

from numpy_attention.app.main import main
from numpy_attention.app.tasks import make_task
from numpy_attention.errors import InputError
from numpy_attention.training.data import read_text
from numpy_attention.training.long_texts import map_ids
from numpy_attention.training.parallel import Workers
from numpy_attention.training.restore import load_run
from numpy_attention.training.tasks import text as text_task
from tests.app.commands import no_pictures
from tests.training.small_runs import assert_same, log_without_times, resume, text, trainer

__all__ = ["no_pictures", "text"]
VOCABULARIES = [{"vocabulary": "char"}, {"vocabulary": "byte"}, {"vocabulary": "bpe", "vocab_size": 270}]


@pytest.fixture
def mapped(monkeypatch):
    """Treat every text as too long for memory."""
    monkeypatch.setattr(text_task, "IN_MEMORY", 0)


@pytest.fixture
def small_pieces(monkeypatch):
    monkeypatch.setattr(text_task, "READ_AT_ONCE", 100)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("settings", VOCABULARIES, ids=lambda settings: settings["vocabulary"])
def test_mapped_ids_give_the_same_run_as_ids_in_memory(tmp_path, text, settings, monkeypatch):
    here = trainer(tmp_path / "here", text, **settings)
    here.run()
    monkeypatch.setattr(text_task, "IN_MEMORY", 0)
    there = trainer(tmp_path / "there", text, **settings)
    there.run()
    assert isinstance(there.task.training_ids, np.memmap)
    assert log_without_times(tmp_path / "there") == log_without_times(tmp_path / "here")
    assert_same(here, there)
    dtype = np.uint16 if settings["vocabulary"] == "bpe" else np.uint8
    ids = map_ids(tmp_path / "there" / there.task.ids_file(), dtype=np.dtype(dtype))
    assert there.task.vocabulary.decode(ids) == read_text(text)


@pytest.mark.usefixtures("mapped")
def test_resumed_run_reuses_its_ids_and_rewrites_damaged_ids(tmp_path, text, monkeypatch):
    directory = tmp_path / "run"
    trainer(directory, text, vocabulary="bpe", steps=3).run()
    path = next(directory.glob("ids-*.bin"))
    whole = path.read_bytes()

    def never(*arguments):
        raise AssertionError("the ids were there")

    with monkeypatch.context() as patch:
        patch.setattr(text_task, "write_ids", never)
        assert resume(directory).run() == "finished"
    another_id = bytearray(whole)
    another_id[-6] ^= 0x01
    for damaged in (whole[:-1], bytes(another_id)):
        path.write_bytes(damaged)
        assert resume(directory).run() == "finished"
        assert path.read_bytes() == whole


@pytest.mark.usefixtures("mapped", "small_pieces")
def test_long_text_that_changes_between_its_two_readings_is_refused(tmp_path, text):
    run = trainer(tmp_path / "run", text)
    with open(text, "a", encoding="utf-8") as file:
        file.write("one")
    with pytest.raises(InputError, match="has changed while it was read"):
        run.run()
    assert not list((tmp_path / "run").glob("ids-*"))


def test_short_text_is_read_once_and_its_fingerprint_is_of_what_was_read(tmp_path, text, monkeypatch):
    times = []
    pieces = text_task.text_pieces
    monkeypatch.setattr(text_task, "text_pieces", lambda path, size: times.append(path) or pieces(path, size))
    for settings in VOCABULARIES:
        task = trainer(tmp_path / "run", text, **settings).task
        read = task.vocabulary.decode(np.concatenate([task.training_ids, task.held_out_ids]))
        assert task.text_hash == hashlib.sha256(read.encode()).hexdigest()
    assert times == [text] * 3


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


@pytest.mark.slow
def test_text_of_one_character_has_losses_of_zero_without_minus_sign(tmp_path):
    (tmp_path / "text.txt").write_text("a" * 400, encoding="utf-8")
    run = trainer(tmp_path / "run", str(tmp_path / "text.txt"))
    with Workers(1) as workers:
        message = run.task.report(run.model, np.random.default_rng(0), workers)
    assert "4-gram     0.000" in message
    assert "-0.000" not in message
