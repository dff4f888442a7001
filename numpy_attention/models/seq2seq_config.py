"""Chapter 24, appendix. The sizes and variants of an encoder-decoder, checked once"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Seq2SeqConfig:
    """All that an encoder-decoder is, but its weights; the defaults are those of the paper, in small.

    Raises: `ValueError` for sizes that do not fit together.
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

    def __post_init__(self) -> None:
        for name in ("source_vocab_size", "target_vocab_size", "context_length", "d_model", "num_heads", "num_layers"):
            if getattr(self, name) < 1:
                raise ValueError(f"Seq2SeqConfig: {name} must be at least 1, got {getattr(self, name)}")
        if self.num_decoder_layers is not None and self.num_decoder_layers < 1:
            raise ValueError(f"Seq2SeqConfig: num_decoder_layers must be at least 1, got {self.num_decoder_layers}")
        if self.share_embeddings and self.source_vocab_size != self.target_vocab_size:
            raise ValueError(
                "Seq2SeqConfig: share_embeddings needs one vocabulary for both sides, got sizes "
                f"{self.source_vocab_size} and {self.target_vocab_size}"
            )
        if not 0.0 <= self.label_smoothing <= 1.0:
            raise ValueError(f"Seq2SeqConfig: label_smoothing must be in [0, 1], got {self.label_smoothing}")
