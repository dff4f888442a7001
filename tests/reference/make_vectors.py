"""Computes the reference vectors with PyTorch's autograd in float64.

    python tests/reference/make_vectors.py            # writes tests/reference/ops.npz
    python tests/reference/make_vectors.py --check    # recomputes them and fails if the stored vectors have drifted

The script needs PyTorch; the tests that read the vectors do not.
"""

import argparse
import sys
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference.cases import CASES, Case, normal

FILE = Path(__file__).with_name("ops.npz")


def attention_by_softmax(q, k, v, mask=None, bias=None, scale=None, dropout=0.0, draws=None):
    """Attention written out, so that autograd goes through the scores; a query without visible keys gets zeros."""
    group = q.shape[-3] // k.shape[-3]
    k, v = k.repeat_interleave(group, dim=-3), v.repeat_interleave(group, dim=-3)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if mask is None:
        weights = torch.softmax(scores, -1)
    else:
        seen = mask.any(-1, keepdim=True)
        weights = torch.softmax(scores.masked_fill(~mask & seen, -torch.inf), -1) * seen
    return (weights if draws is None else dropped(weights, dropout, draws)) @ v


def attention_by_sdpa(q, k, v, mask=None, causal=False, scale=None, block_size=None):
    """The function of PyTorch. Its causal mask is aligned at the first key, so we pass ours, aligned at the last."""
    T_q, T_k = q.shape[-2], k.shape[-2]
    if causal:
        lower = torch.ones(T_q, T_k, dtype=torch.bool).tril(T_k - T_q)
        mask = lower if mask is None else mask & lower
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale, enable_gqa=q.shape[-3] != k.shape[-3])


def dropped(x, rate, draws):
    return torch.where(draws >= rate, x / (1 - rate), 0.0)


def rotary(x, positions, base=10000.0, pairing="half"):
    """Pairs of channels as complex numbers, turned by exp(i position frequency)."""
    d = x.shape[-1]
    frequencies = base ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    turn = torch.polar(torch.ones(()).to(x), positions[..., None] * frequencies)   # (T, d / 2)
    if pairing == "interleaved":
        return torch.view_as_real(torch.view_as_complex(x.reshape(*x.shape[:-1], -1, 2)) * turn).flatten(-2)
    turned = torch.complex(x[..., : d // 2].contiguous(), x[..., d // 2 :].contiguous()) * turn
    return torch.cat([turned.real, turned.imag], -1)


def sinusoidal_positions(length, d_model):
    frequencies = 10000.0 ** (-torch.arange(0, d_model + 1, 2, dtype=torch.float64) / d_model)
    angles = torch.arange(length, dtype=torch.float64)[:, None] * frequencies
    return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)[:, :d_model]


def cross_entropy(logits, targets, **options):
    return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), **options)


def linear_cross_entropy(x, table, targets, block_size, **options):
    """The loss from all logits at once; memory does not matter here."""
    return cross_entropy(x @ table.T, targets, **options)


TORCH: dict[str, Callable[..., Tensor]] = {
    "linear": lambda x, w, b=None: F.linear(x, w.T, b),
    "embedding": lambda ids, table: table[ids],
    "sinusoidal_positions": sinusoidal_positions,
    "rotary": rotary,
    "softmax": lambda x, axis=-1: torch.softmax(x, axis),
    "scaled_dot_product_attention": attention_by_softmax,
    "tiled_attention": attention_by_sdpa,
    "split_heads": lambda x, num_heads: x.unflatten(-1, (num_heads, -1)).transpose(-2, -3),
    "concat_heads": lambda x: x.transpose(-2, -3).flatten(-2),
    "layer_norm": lambda x, gamma, beta, eps=1e-5: F.layer_norm(x, gamma.shape, gamma, beta, eps),
    "rms_norm": lambda x, gamma, eps=1e-6: F.rms_norm(x, gamma.shape, gamma, eps),
    "relu": lambda x: x.relu(),
    "gelu": lambda x, approximate: F.gelu(x, approximate=approximate),
    "dropout": dropped,
    "silu": lambda x: x * x.sigmoid(),
    "cross_entropy": cross_entropy,
    "linear_cross_entropy": linear_cross_entropy,
}


def vectors_of(name: str, case: Case) -> dict[str, np.ndarray]:
    """Inputs, dy, the result of the forward, and gradients of one case, by the names of the arguments."""
    inputs = case.inputs(name)
    tensors = {argument: torch.from_numpy(array) for argument, array in inputs.items()}
    wanted = [tensors[argument].requires_grad_() for argument in case.differentiable if argument in tensors]
    y = TORCH[case.op](**tensors, **case.options)
    found = {argument: narrowed(array) for argument, array in inputs.items()} | {"y": y.detach().numpy()}
    if wanted:
        found["dy"] = normal(np.random.default_rng(zlib.crc32(f"d{name}".encode())), *y.shape)
        gradients = torch.autograd.grad(y, wanted, torch.from_numpy(found["dy"]))
        found["dy"] = narrowed(found["dy"])
        present = [argument for argument in case.differentiable if argument in tensors]
        found |= {f"d{argument}": gradient.numpy() for argument, gradient in zip(present, gradients)}
    return {f"{name}/{key}": array for key, array in found.items()}


def narrowed(array: np.ndarray) -> np.ndarray:
    """The array in the smallest dtype that holds every value exactly; the tests widen it again."""
    candidates = {"f": (np.float16, np.float32), "i": (np.int16,), "b": (np.bool_,)}[array.dtype.kind]
    return next(narrow for narrow in map(array.astype, candidates) if (narrow == array).all())


def compare(stored: dict[str, np.ndarray], fresh: dict[str, np.ndarray]) -> list[str]:
    """The arrays that have drifted: missing or extra arrays, different shapes, and values that differ by over 1e-12."""
    drifted = [f"only in one of the two: {key}" for key in sorted(stored.keys() ^ fresh.keys())]
    for key in sorted(stored.keys() & fresh.keys()):
        old, new = stored[key], fresh[key]
        if old.shape != new.shape or old.dtype != new.dtype:
            drifted.append(f"{key}: stored {old.dtype} {old.shape}, now {new.dtype} {new.shape}")
        elif not np.allclose(old.astype(float), new.astype(float), rtol=1e-12, atol=1e-13 * np.abs(new).max(initial=0)):
            drifted.append(f"{key}: off by {np.abs(old.astype(float) - new.astype(float)).max():.1e}")
    return drifted


def main() -> int:
    parser = argparse.ArgumentParser(description="reference vectors from PyTorch's autograd")
    parser.add_argument("--check", action="store_true", help="compare with the stored vectors instead of writing them")
    check = parser.parse_args().check
    fresh = {key: array for name, case in CASES.items() for key, array in vectors_of(name, case).items()}
    if not check:
        np.savez_compressed(FILE, **fresh)
        print(f"{FILE}: {len(CASES)} cases, {len(fresh)} arrays, {FILE.stat().st_size / 1024:.0f} KB")
        return 0
    with np.load(FILE) as stored:
        drifted = compare(dict(stored), fresh)
    summary = f"torch {torch.__version__}: {len(CASES)} cases, {len(drifted)} of {len(fresh)} arrays drifted"
    print(*drifted, summary, sep="\n")
    return 1 if drifted else 0


if __name__ == "__main__":
    sys.exit(main())
