"""The sequence classifier (Chapter 22): every pooling, with padding, with ids or vectors as inputs."""

from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Entry, Options, layer_entry, size_of
from numpy_attention.catalogue.tiny import IDS, LENGTHS, SMALL, TILED, TINY, in_little_memory, training_on
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig

CHAPTER = 22

CLASS_TOKEN: dict[str, Any] = {"pooling": "class_token", "positions": "learned"}
ONE_EACH = ", targets: int<3> B"


def _entry(
    variant: str, spec: str, options: Options | None = None, wrong: str = "", recompute: bool = False, **config: Any
) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> SequenceClassifier:
        tokens = {} if "d_input" in config else {"vocab_size": size_of(sizes, "V")}
        complete = SequenceClassifierConfig(num_classes=3, **{**TINY, **tokens, **config})
        return in_little_memory(SequenceClassifier(complete, rng, dtype), recompute)

    return layer_entry(SequenceClassifier, variant, spec, build, options=options, wrong=wrong, **SMALL)


ENTRIES = (
    _entry("mean", IDS + ONE_EACH, wrong="ids=999 targets+0"),
    _entry("mean of the visible tokens, pre-norm", IDS + ONE_EACH, LENGTHS, pre_norm=True),
    _entry("class token, dropout", IDS + ONE_EACH, training_on, dropout=0.3, **CLASS_TOKEN),
    _entry("dropout, recomputed", IDS + ONE_EACH, training_on, dropout=0.3, recompute=True),
    _entry("in tiles", IDS + ONE_EACH, LENGTHS, **TILED, **CLASS_TOKEN),
    _entry("a label for each token", IDS + ", targets: int<3|-100> B T", pooling="none", norm="rms_norm"),
    _entry("vectors instead of tokens", "ids: float B T 5" + ONE_EACH, d_input=5, activation="gelu"),
)
