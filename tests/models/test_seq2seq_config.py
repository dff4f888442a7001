"""The configuration of an encoder-decoder refuses invalid fields."""

import dataclasses

import pytest

from tests.models.test_seq2seq import CONFIG


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"share_embeddings": True, "target_vocab_size": 8}, "equal vocabulary sizes"),
        ({"num_decoder_layers": 0}, "num_decoder_layers must be at least 1"),
        ({"label_smoothing": 1.5}, "label_smoothing must be"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refuses_invalid_fields(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONFIG, **change)
