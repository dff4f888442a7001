"""Every task learns, judges itself rightly, and can be run from the command line."""

import datetime as dt
import importlib.util
import json

import numpy as np
import pytest

from numpy_attention.cli import main
from numpy_attention.errors import InputError
from numpy_attention.runs.config import TASKS as NAMES
from numpy_attention.runs.config import TrainConfig
from numpy_attention.runs.parallel import Workers
from numpy_attention.runs.trainer import Trainer
from numpy_attention.tasks import TASKS, dates, digits, make_task
from numpy_attention.tasks.sums import SumTask


def trained(tmp_path, task, **settings):
    """A trainer that has taken its steps, and its figures."""
    config = TrainConfig(**({"task": task} | TASKS[task].defaults | {"workers": 1} | settings))
    trainer = Trainer(config, make_task(config), tmp_path)
    with Workers(1) as workers:
        while trainer.step < config.steps:
            trainer.one_step(workers)
        return trainer, trainer.task.evaluate(trainer.model, workers)


def test_every_task_has_its_name_and_its_defaults_are_settings():
    assert tuple(TASKS) == NAMES
    for name, task in TASKS.items():
        TrainConfig.from_mapping({"task": name, **task.defaults}, "")


def test_the_sum_is_learned_by_adam_and_not_in_the_lessons_setting(tmp_path):
    assert trained(tmp_path, "sum", steps=400)[1]["val_accuracy"] > 0.85
    trainer, figures = trained(tmp_path, "sum", **SumTask.lesson)
    labels = trainer.task.test[1]
    assert 0.45 < labels.mean() < 0.55
    assert figures["val_accuracy"] < 0.56


def test_the_labels_of_the_sum_are_those_of_its_numbers():
    config = TrainConfig(**({"task": "sum"} | SumTask.defaults))
    ids, labels = SumTask(config).examples(500, np.random.default_rng(0))
    assert ids.min() == 0
    assert ids.max() == 99
    np.testing.assert_array_equal(labels, [int(sum(row) > 400) for row in ids.tolist()])


def test_reversing_is_learned(tmp_path):
    trainer, figures = trained(tmp_path, "reverse", context=6, d_model=16, steps=350, learning_rate=5e-3)
    assert figures["val_accuracy"] > 0.95
    ids, targets = trainer.task.batch(np.random.default_rng(0))
    np.testing.assert_array_equal(targets, ids[:, ::-1])


def test_copying_is_learned_exactly(tmp_path):
    settings = {"context": 6, "layers": 1, "d_model": 32, "d_ff": 64, "steps": 400, "learning_rate": 5e-3}
    trainer, figures = trained(tmp_path, "copy", **settings)
    assert figures["val_exact"] > 0.9
    source_ids, target_ids, targets = trainer.task.batch(np.random.default_rng(0))
    assert (source_ids[:, 0] == 1).all()
    np.testing.assert_array_equal(target_ids, source_ids[:, :-1])
    np.testing.assert_array_equal(targets, source_ids[:, 1:])


def test_dates_begin_to_be_learned(tmp_path):
    settings = {"layers": 1, "d_model": 32, "d_ff": 64, "batch": 32, "steps": 120, "learning_rate": 4e-3}
    _, before = trained(tmp_path, "dates", **(settings | {"steps": 1}))
    _, after = trained(tmp_path, "dates", **settings)
    assert before["val_loss"] > 2.0
    assert after["val_loss"] < 1.2  # ten digits and a dash, of which the dashes and the century are easy


@pytest.mark.parametrize(
    ("form", "written"),
    [
        (0, "3rd of March, 1987"),
        (1, "3 March 1987"),
        (3, "March 3rd, 1987"),
        (5, "3-Mar-1987"),
        (6, "3.3.1987"),
        (7, "Tuesday, 3 March 1987"),
    ],
)
def test_a_date_is_written_in_its_form(form, written):
    assert dates.write_date(dt.date(1987, 3, 3), dates.FORMS[form]) == written


@pytest.mark.parametrize(
    ("day", "ending"), [(1, "st"), (2, "nd"), (3, "rd"), (11, "th"), (12, "th"), (13, "th"), (22, "nd"), (30, "th")]
)
def test_ordinal_endings_are_english(day, ending):
    assert dates.write_date(dt.date(2001, 5, day), "{day}{th}") == f"{day}{ending}"


def test_held_out_pairs_of_form_and_date_never_appear_in_training():
    rng = np.random.default_rng(0)
    training = {source for source, _ in dates.draw_dates(20_000, rng, held_out=False)}
    held_out = [source for source, _ in dates.draw_dates(2_000, rng, held_out=True)]
    assert len(held_out) == 2_000
    assert not training & set(held_out)
    assert max(map(len, [*training, *held_out])) <= dates.LONGEST


def test_encoded_dates_can_be_spelled_again():
    source_ids, target_ids, targets = dates.encode_dates([("3 May 1987", "1987-05-03"), ("May 21, 2003", "2003-05-21")])
    assert source_ids.shape == (2, 12)
    assert (source_ids[0, 10:] == 0).all()
    assert [dates.spell(row) for row in targets] == ["1987-05-03", "2003-05-21"]
    np.testing.assert_array_equal(target_ids[:, 1:], targets[:, :-1])
    assert (target_ids[:, 0] == dates.START).all()
    assert (targets[:, -1] == dates.STOP).all()


def test_exact_matches_are_counted_to_the_last_token(tmp_path):
    config = TrainConfig(**({"task": "dates"} | TASKS["dates"].defaults))
    task = make_task(config)

    class Oracle:
        """Writes two dates of three rightly."""

        def greedy(self, source_ids, start_token, stop_token, max_tokens):
            return [right, np.append(right[:-2], [3, 2]), right]

    source_ids, target_ids, targets = dates.encode_dates([("3 May 1987", "1987-05-03")] * 3)
    right = targets[0]
    np.testing.assert_array_equal(task.exact(Oracle(), (source_ids, target_ids, targets)), [True, False, True])


def synthetic_digits():
    """Images that show their label as a bright row: what the task needs of real ones, in small."""
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 8, size=200)
    images = rng.uniform(0, 0.2, size=(200, 8, 8)).astype(np.float32)
    images[np.arange(200), labels] += 0.8
    return images, labels


def test_images_are_learned_as_sequences_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "load_images", synthetic_digits)
    trainer, figures = trained(tmp_path, "digits", steps=200, warmup=20, learning_rate=5e-3, layers=1)
    assert figures["val_accuracy"] > 0.9
    assert len(trainer.task.train[0]) == 160
    assert len(trainer.task.test[0]) == 40


def test_the_real_digits_are_loaded_or_their_package_is_named(capsys):
    if importlib.util.find_spec("sklearn") is None:
        with pytest.raises(InputError, match="pip install scikit-learn"):
            digits.load_images()
    else:
        images, labels = digits.load_images()
        assert images.shape == (1797, 8, 8)
        assert images.max() == 1.0
        assert sorted(set(labels.tolist())) == list(range(10))


SMALL = ["--layers=1", "--heads=2", "--d-model=16", "--batch=4", "--workers=1", "--steps=2"]


@pytest.mark.parametrize(
    ("task", "said"),
    [("sum", "fresh sequences"), ("reverse", "published"), ("copy", "exact copies"), ("dates", "exact")],
)
def test_a_task_runs_from_the_command_line_and_is_resumed(tmp_path, capsys, task, said):
    directory = tmp_path / task
    assert main(["train", "--task", task, "--out", str(directory), *SMALL]) == 0
    assert said in capsys.readouterr().out
    assert json.loads((directory / "config.json").read_text())["task"] == task
    assert main(["train", "--resume", str(directory)]) == 0
    assert main(["sample", str(directory)]) == 2
    assert "only a text model" in capsys.readouterr().err


def test_sizes_that_do_not_fit_a_task_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for task, *bad in (
        ("sum", "--heads=3"), ("reverse", "--positions=rotary"), ("copy", "--heads=3"),
        ("dates", "--context=10"), ("text", "--as-in-the-lesson"),
    ):  # fmt: skip
        assert main(["train", "--task", task, *bad]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())
