"""digits: images as sequences of rows."""

import importlib.util

import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.tasks import digits
from tests.training.tasks.trained import synthetic_digits, trained


def test_images_are_learned_as_sequences_of_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(digits, "load_images", synthetic_digits)
    trainer, figures = trained(tmp_path, "digits", steps=200, warmup=20, learning_rate=5e-3, layers=1)
    assert figures["val_accuracy"] > 0.9
    assert len(trainer.task.train[0]) == 160
    assert len(trainer.task.test[0]) == 40


def test_real_digits_load_or_the_error_names_the_missing_package(capsys):
    if importlib.util.find_spec("sklearn") is None:
        with pytest.raises(InputError, match="pip install scikit-learn"):
            digits.load_images()
    else:
        images, labels = digits.load_images()
        assert images.shape == (1797, 8, 8)
        assert images.max() == 1.0
        assert sorted(set(labels.tolist())) == list(range(10))
