"""Part VII. Attention since 2023: what recent open models add to the transformer of Parts I to III."""

from numpy_attention.recent.c42_recurrence import linear_attention, linear_attention_backward
from numpy_attention.recent.c43_chunks import chunked_linear_attention, chunked_linear_attention_backward
from numpy_attention.recent.c44_convolution import causal_convolution, causal_convolution_backward
from numpy_attention.recent.c45_latent_attention import LatentAttention
from numpy_attention.recent.c46_scores import (
    sigmoid_gate,
    sigmoid_gate_backward,
    softcap,
    softcap_backward,
    softmax_with_sink,
    softmax_with_sink_backward,
)
from numpy_attention.recent.c46a_tamed_attention import (
    tamed_attention,
    tamed_attention_backward,
    tamed_tiled_attention,
    tamed_tiled_attention_backward,
)
from numpy_attention.recent.c47_rotary_scaling import (
    rotary_frequencies,
    scaled_rotary,
    scaled_rotary_backward,
    yarn_temperature,
)
from numpy_attention.recent.c48_recent_attention import RecentAttention
from numpy_attention.recent.c49_recent_gpt import RecentBlock, RecentGPT, RecentGPTConfig

__all__ = [
    "linear_attention", "linear_attention_backward", "chunked_linear_attention", "chunked_linear_attention_backward",
    "causal_convolution", "causal_convolution_backward", "LatentAttention",
    "softcap", "softcap_backward", "softmax_with_sink", "softmax_with_sink_backward",
    "sigmoid_gate", "sigmoid_gate_backward", "tamed_attention", "tamed_attention_backward",
    "tamed_tiled_attention", "tamed_tiled_attention_backward",
    "rotary_frequencies", "scaled_rotary", "scaled_rotary_backward", "yarn_temperature",
    "RecentAttention", "RecentBlock", "RecentGPT", "RecentGPTConfig",
]
