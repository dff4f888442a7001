"""The plain form of tiled attention."""

from tests.tutor.plain.attention import plain_attention

PLAIN = {"tiled_attention": plain_attention}
