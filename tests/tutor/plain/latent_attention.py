"""The plain form of latent attention."""

from functools import partial

import numpy as np

from numpy_attention.recent.c45_latent_attention import LatentAttention
from numpy_attention.tutor.entry import Array
from tests.tutor.plain.attention import plain_attention
from tests.tutor.plain.normalization import plain_rms_norm
from tests.tutor.plain.positions import plain_rotary


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
