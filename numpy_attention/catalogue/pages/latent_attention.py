"""Latent attention: Chapter 45."""

from functools import partial
from typing import Any

import numpy as np

from numpy_attention.catalogue.entry import Array, Entry, layer_entry, size_of
from numpy_attention.catalogue.mistake import method_of
from numpy_attention.catalogue.pages.attention import plain_attention
from numpy_attention.catalogue.pages.normalization import plain_rms_norm
from numpy_attention.catalogue.pages.positions import plain_rotary
from numpy_attention.gradcheck.spec import Sizes
from numpy_attention.recent.latent_attention import LatentAttention, LatentAttentionCache

CHAPTER = 45


def _entry(variant: str, spec: str, wrong: str = "", d_rope: int = 2, **options: Any) -> Entry:
    def build(sizes: Sizes, rng: np.random.Generator, dtype: Any) -> LatentAttention:
        return LatentAttention(size_of(sizes, "d_model"), 3, rng, 5, 3, d_rope, dtype=dtype, **options)

    return layer_entry(LatentAttention, variant, spec, build, wrong=wrong, fixed={"B": 2, "d_model": 4})


ENTRIES = (
    _entry("", "x: B T d_model, mask: bool B 3 T T", wrong="x-1 x:int64 mask+3", d_v=4),
    _entry("low-rank queries", "x: B T d_model, mask: bool T T, positions: int<60> B T", "positions+1", 4, q_rank=4),
    _entry("one column of values", "x: B T d_model, positions: int<60> T", d_rope=4, d_v=1, q_rank=1, rotary_base=10.0),
)


def plain_latent_attention(
    layer: LatentAttention, x: Array, mask: Array | None = None, positions: Array | None = None, **arrays: Array
) -> Array:
    """Computes one head at a time, with its columns of the weights."""
    *lead, T, _ = x.shape
    H, n, r = layer.num_heads, layer.d_nope, layer.rank
    places = np.arange(T) if positions is None else positions
    rotated = partial(plain_rotary, positions=places, base=layer.rotary_base, pairing="interleaved")
    seen = np.broadcast_to(np.ones((), bool) if mask is None else mask, (*lead, H, T, T))
    c_q = plain_rms_norm(x @ arrays["w_dq"], arrays["gamma_q"]) if "w_dq" in arrays else x
    down = x @ arrays["w_dkv"]
    c, k_rope = plain_rms_norm(down[..., :r], arrays["gamma_kv"]), rotated(down[..., r:])
    heads = []
    for h in range(H):
        w_q, w_k, w_v = (np.split(arrays[name], H, axis=1)[h] for name in ("w_uq", "w_uk", "w_uv"))
        q = np.concatenate([c_q @ w_q[:, :n], rotated(c_q @ w_q[:, n:])], axis=-1)
        k = np.concatenate([c @ w_k, k_rope], axis=-1)
        heads.append(np.asarray(plain_attention(q, k, c @ w_v, seen[..., h, :, :])))
    return np.concatenate(heads, axis=-1) @ arrays["w_o"]


PLAIN = {"LatentAttention": plain_latent_attention}


@method_of("LatentAttention", "backward", diagnosis="a mean instead of a sum")
def shared_key_averaged(self: LatentAttention, dy: Array, cache: LatentAttentionCache) -> Any:
    """The gradient of k_rope is the mean over the heads, but all heads use the same key, so it is the sum.

    Hides: right for one head; the direction of the gradient of k_rope is right.
    """
    turn = cache.rotary_k
    return LatentAttention.backward(self, dy, cache._replace(
        rotary_k=turn._replace(cos=turn.cos / self.num_heads, sin=turn.sin / self.num_heads)))


@method_of("LatentAttention", "backward", diagnosis="a path to the input is missing")
def path_through_the_latent_forgotten(self: LatentAttention, dy: Array, cache: LatentAttentionCache) -> Any:
    """dx holds only the path through the queries; keys and values come from x too, through w_dkv.

    Hides: the gradients of all parameters of the layer are right.
    """
    down, norm = cache.down_kv
    return LatentAttention.backward(self, dy, cache._replace(down_kv=(down._replace(w=0 * down.w), norm)))
