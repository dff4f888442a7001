"""Part III. Whole models: an embedding, a stack of blocks, a head, and a loss.

    loss, cache = model.loss(*inputs, targets)
    grads       = model.backward(cache)     same names and shapes as model.parameters()
"""

from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.models.seq2seq import Seq2Seq
from numpy_attention.models.seq2seq_config import Seq2SeqConfig
from numpy_attention.models.sequence_classifier import SequenceClassifier, SequenceClassifierConfig
from numpy_attention.models.text_encoder import TextEncoder, TextEncoderConfig

__all__ = [
    "GPT", "GPTConfig", "Seq2Seq", "Seq2SeqConfig", "SequenceClassifier", "SequenceClassifierConfig", "TextEncoder",
    "TextEncoderConfig",
]
