"""A very small encoder or decoder."""

from typing import Any

import numpy as np

from numpy_attention.models.c24a_seq2seq_config import Seq2SeqConfig
from numpy_attention.models.c24c_stacks import Stack
from numpy_attention.tutor.tiny import TINY


def stack(
    rng: np.random.Generator, dtype: Any, num_layers: int = 1, cross_attention: bool = False, **config: Any
) -> Stack:
    """An encoder, or with cross-attention a decoder; `config` are options of Seq2SeqConfig."""
    complete = Seq2SeqConfig(source_vocab_size=2, target_vocab_size=2, **{**TINY, **config})
    return Stack(complete, num_layers, rng, cross_attention, dtype)
