"""Chapter 24, appendix. The sizes and variants of an encoder-decoder"""

from dataclasses import dataclass

from numpy_attention.layers.c15a_position_embedding import KINDS
from numpy_attention.models.c21a_config import ModelConfig


@dataclass(frozen=True)
class Seq2SeqConfig(ModelConfig):
    """The configuration of an encoder-decoder. The default blocks and positions are those of Vaswani et al. (2017).

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
    pad_token: int | None = None  # the id of padding, on both sides; None: no padding, or lengths are given
    tie_weights: bool = False  # the head uses the table of the target embedding
    share_embeddings: bool = False  # the source uses this table too (one vocabulary for both)
    label_smoothing: float = 0.0
    pre_norm: bool = False
    norm: str = "layer_norm"  # or "rms_norm"
    activation: str = "relu"
    bias: bool = True
    dropout: float = 0.0
    attention: str = "auto"  # or "dense" (all weights at once), "tiled" (for long texts); auto: the faster one

    def __post_init__(self) -> None:
        self.check(positions=KINDS)
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            sizes = f"{self.source_vocab_size} and {self.target_vocab_size}"
            raise self.wrong("share_embeddings", "used with equal vocabulary sizes", sizes)
        self.require("label_smoothing", at_least=0, at_most=1)
