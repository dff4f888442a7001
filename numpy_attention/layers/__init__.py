"""Part II. Layers: the functions of Part I together with their parameters.

    y, cache  = layer.forward(x)            a layer owns parameters, nothing else
    dx, grads = layer.backward(dy, cache)   grads has the names and shapes of layer.parameters()

In a layer with dropout, an `rng` turns dropout on; without an `rng`, dropout is off.
"""

from numpy_attention.layers.block import DecoderBlock, EncoderBlock
from numpy_attention.layers.embedding import Embedding
from numpy_attention.layers.feed_forward import FeedForward
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.layers.layer import Layer
from numpy_attention.layers.linear import Linear
from numpy_attention.layers.multi_head_attention import MultiHeadAttention
from numpy_attention.layers.normalization import LayerNorm, RMSNorm
from numpy_attention.layers.position_embedding import PositionEmbedding

__all__ = [
    "DecoderBlock", "Embedding", "EncoderBlock", "FeedForward", "KeyValueCache", "Layer", "LayerNorm", "Linear",
    "MultiHeadAttention", "PositionEmbedding", "RMSNorm",
]
