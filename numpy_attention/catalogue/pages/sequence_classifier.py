"""The sequence classifier (Chapter 22): every pooling, with padding, with ids or vectors as inputs."""

from functools import partial
from typing import Any

from numpy_attention.catalogue.entry import Entry, Options, layer_entry
from numpy_attention.catalogue.tiny import IDS, LENGTHS, SMALL, TILED, tiny_model, training_on
from numpy_attention.models.sequence_classifier import SequenceClassifier

CHAPTER = 22

CLASS_TOKEN: dict[str, Any] = {"pooling": "class_token", "positions": "learned"}
ONE_EACH = ", targets: int<3> B"


def _entry(variant: str, spec: str, options: Options | None = None, wrong: str = "", **model: Any) -> Entry:
    build = partial(tiny_model, SequenceClassifier, num_classes=3, **model)
    return layer_entry(SequenceClassifier, variant, spec, build, options, wrong=wrong, **SMALL)


ENTRIES = (
    _entry("mean", IDS + ONE_EACH, wrong="ids=999 targets+0"),
    _entry("mean of the visible tokens, pre-norm", IDS + ONE_EACH, LENGTHS, pre_norm=True),
    _entry("class token, dropout", IDS + ONE_EACH, training_on, dropout=0.3, **CLASS_TOKEN),
    _entry("dropout, recomputed", IDS + ONE_EACH, training_on, dropout=0.3, recompute=True),
    _entry("in tiles", IDS + ONE_EACH, LENGTHS, **TILED, **CLASS_TOKEN),
    _entry("a label for each token", IDS + ", targets: int<3|-100> B T", pooling="none", norm="rms_norm"),
    _entry("vectors instead of tokens", "ids: float B T 5" + ONE_EACH, vocab_size=None, d_input=5, activation="gelu"),
)
