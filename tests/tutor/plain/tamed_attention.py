"""The plain forms of attention with a softcap and a sink: those of attention."""

from tests.tutor.plain.attention import plain_attention

PLAIN = {"tamed_attention": plain_attention, "tamed_tiled_attention": plain_attention}
