"""Part II. Layers: the functions of Part I together with their parameters.

    y, cache  = layer.forward(x)            a layer owns parameters, nothing else
    dx, grads = layer.backward(dy, cache)   grads has the names and shapes of layer.parameters()

In a layer with dropout, an `rng` turns dropout on; without an `rng`, dropout is off.
"""

from numpy_attention.layers.c13_layer import Layer
from numpy_attention.layers.c14_linear import Linear
from numpy_attention.layers.c15_embedding import Embedding
from numpy_attention.layers.c15a_position_embedding import PositionEmbedding
from numpy_attention.layers.c16_normalization import LayerNorm, RMSNorm
from numpy_attention.layers.c17_multi_head_attention import MultiHeadAttention
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.layers.c18_feed_forward import FeedForward
from numpy_attention.layers.c20_block import DecoderBlock, EncoderBlock

__all__ = [
    "DecoderBlock", "Embedding", "EncoderBlock", "FeedForward", "KeyValueCache", "Layer", "LayerNorm", "Linear",
    "MultiHeadAttention", "PositionEmbedding", "RMSNorm",
]
