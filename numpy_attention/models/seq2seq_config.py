"""Chapter 24, appendix. The sizes and variants of an encoder-decoder"""

from dataclasses import dataclass

from numpy_attention.layers.position_embedding import KINDS
from numpy_attention.models.config import ModelConfig


@dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """All that an encoder-decoder is, but its weights; blocks and positions are the paper's by default.

    Raises: ValueError for sizes that do not fit together.
    """

    source_vocab_size: int
    target_vocab_size: int
    context_length: int  # the longest source, and the longest target with its start token
    d_model: int
    num_heads: int
    num_layers: int = 2  # of the encoder
    num_decoder_layers: int | None = None  # None: as many as the encoder has
    d_ff: int | None = None  # None: 4 d_model
    positions: str = "sinusoidal"  # or "learned"
    pad_token: int | None = None  # this id is padding, on both sides; None: there is none, or the lengths tell
    tie_weights: bool = False  # the head scores with the table that embeds the target
    share_embeddings: bool = False  # the source uses that table too (one vocabulary for both)
    label_smoothing: float = 0.0
    pre_norm: bool = False
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0
    attention: str = "auto"  # or "dense", all weights at once, or "tiled", for long texts; auto: as is faster

    def __post_init__(self) -> None:
        self.check(positions=KINDS)
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            sizes = f"sizes {self.source_vocab_size} and {self.target_vocab_size}"
            raise self.wrong("share_embeddings", "for one vocabulary on both sides", sizes)
        self.require("label_smoothing", at_least=0, at_most=1)
