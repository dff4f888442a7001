"""Part III. Whole models: an embedding, a stack of blocks, a head, and a loss.

    loss, cache = model.loss(*inputs, targets)
    grads       = model.backward(cache)     same names and shapes as model.parameters()
"""

from numpy_attention.models.c22_sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.models.c22a_text_encoder import TextEncoder, TextEncoderConfig
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.models.c24a_seq2seq_config import Seq2SeqConfig

__all__ = [
    "GPT", "GPTConfig", "Seq2Seq", "Seq2SeqConfig", "SequenceClassifier", "SequenceClassifierConfig", "TextEncoder",
    "TextEncoderConfig",
]
