"""digits: images as sequences of rows."""

import importlib.util

import pytest

from numpy_attention.errors import InputError
from numpy_attention.training.tasks import digits


@pytest.mark.slow
def test_real_digits_load_or_the_error_names_the_missing_package():
    if importlib.util.find_spec("sklearn") is None:
        with pytest.raises(InputError, match="pip install scikit-learn"):
            digits.load_images()
    else:
        images, labels = digits.load_images()
        assert images.shape == (1797, 8, 8)
        assert images.max() == 1.0
        assert sorted(set(labels.tolist())) == list(range(10))
