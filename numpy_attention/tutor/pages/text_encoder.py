"""The directions of a text encoder as a layer, without the loss."""

from typing import Any

from numpy_attention.layers.c13_layer import Layer, prefixed
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.tutor.entry import Array


class Directions(Layer):
    """The forward of a text encoder as a layer, so that its backward is checked with a random dy, without the loss."""

    def __init__(self, encoder: TextEncoder) -> None:
        self.encoder = encoder

    def forward(self, ids: Array, **options: Any) -> Any:
        return self.encoder.forward(ids, **options)

    def backward(self, dy: Array, cache: Any) -> tuple[Any]:
        """The gradients of all parameters; ids have no gradient."""
        return (prefixed("encoder", dict(self.encoder.gradients_from_logits(cache, dy))),)
