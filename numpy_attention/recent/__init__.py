"""Part VII. Attention since 2023: what recent open models add to the transformer of Parts I to III."""

from numpy_attention.recent.c42_recurrence import linear_attention, linear_attention_backward
from numpy_attention.recent.c43_chunks import chunked_linear_attention, chunked_linear_attention_backward
from numpy_attention.recent.c44_convolution import causal_convolution, causal_convolution_backward
from numpy_attention.recent.c45_latent_attention import LatentAttention

__all__ = [
    "LatentAttention", "causal_convolution", "causal_convolution_backward", "chunked_linear_attention",
    "chunked_linear_attention_backward", "linear_attention", "linear_attention_backward",
]
