"""Part VII. Attention since 2023: what recent open models add to the transformer of Parts I to III."""

from numpy_attention.recent.chunks import chunked_linear_attention, chunked_linear_attention_backward
from numpy_attention.recent.convolution import causal_convolution, causal_convolution_backward
from numpy_attention.recent.latent_attention import LatentAttention
from numpy_attention.recent.recurrence import linear_attention, linear_attention_backward

__all__ = [
    "LatentAttention", "causal_convolution", "causal_convolution_backward", "chunked_linear_attention",
    "chunked_linear_attention_backward", "linear_attention", "linear_attention_backward",
]
