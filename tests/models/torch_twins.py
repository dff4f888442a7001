"""The same models in PyTorch, with gradients from its autograd, as a reference.

    python tests/models/torch_twins.py            # writes tests/models/twins.npz
    python tests/models/torch_twins.py --check    # recomputes it and fails if the stored numbers have drifted

Written from the papers' formulas on PyTorch's own functions (F.layer_norm, F.scaled_dot_product_attention,
F.cross_entropy, torch.optim.AdamW), in float64. Parameters are a dict with our names. This script needs PyTorch;
the test that reads the stored numbers does not.
"""

import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy_attention as na
from tests.models.twin_cases import ADAMW, FILE, MODELS, make

P = dict[str, Tensor]


def part(p: P, prefix: str) -> P:
    return {name.removeprefix(prefix + "."): x for name, x in p.items() if name.startswith(prefix + ".")}


def norm(p: P, x: Tensor) -> Tensor:
    d = x.shape[-1:]
    return F.layer_norm(x, d, p["gamma"], p["beta"], 1e-5) if "beta" in p else F.rms_norm(x, d, p["gamma"], 1e-6)


def affine(p: P, x: Tensor, name: str) -> Tensor:
    return F.linear(x, p[name].T, p.get("b" + name[1:]))  # w_q with b_q, and so on


def rotate(x: Tensor) -> Tensor:
    """Complex numbers x_i + i x_(i + d/2), turned by t 10000^(-2i/d)."""
    T, d = x.shape[-2:]
    angle = torch.arange(T, dtype=x.dtype)[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    turned = torch.complex(x[..., : d // 2].contiguous(), x[..., d // 2 :].contiguous()) * torch.exp(1j * angle)
    return torch.cat([turned.real, turned.imag], -1)


def attention(p: P, x: Tensor, context: Tensor, heads: int, allowed: Tensor, config: Any = None) -> Tensor:
    B, T, d = x.shape
    d_k = d // heads
    q, k, v = (affine(p, source, name).reshape(B, -1, p[name].shape[1] // d_k, d_k).transpose(1, 2)
               for source, name in ((x, "w_q"), (context, "w_k"), (context, "w_v")))  # fmt: skip
    if getattr(config, "positions", "") == "rotary":
        q, k = rotate(q), rotate(k)
    additive = torch.zeros(allowed.shape, dtype=x.dtype).masked_fill(~allowed, -torch.inf)
    if getattr(config, "positions", "") == "alibi":
        slopes = torch.tensor([2.0 ** (-8 * (h + 1) / heads) for h in range(heads)], dtype=x.dtype)
        distance = (torch.arange(T)[:, None] - torch.arange(T)).abs()
        additive = additive - slopes[:, None, None] * distance
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=additive, enable_gqa=k.shape[1] != heads)
    return affine(p, y.transpose(1, 2).reshape(B, T, -1), "w_o")


def feed_forward(p: P, x: Tensor, activation: str) -> Tensor:
    h = affine(p, x, "w_1")
    if activation == "swiglu":
        h = F.silu(affine(p, x, "w_gate")) * h
    elif activation.startswith("gelu"):
        h = F.gelu(h, approximate="tanh" if activation == "gelu" else "none")
    else:
        h = getattr(F, activation)(h)
    return affine(p, h, "w_2")


def block(p: P, x: Tensor, allowed: Tensor, config: Any, context: Tensor | None = None, seen: Any = None) -> Tensor:
    def sublayer(x: Tensor, norm_name: str, f: Any) -> Tensor:
        gains = part(p, norm_name)
        return x + f(norm(gains, x)) if config.pre_norm else norm(gains, x + f(x))

    H = config.num_heads
    x = sublayer(x, "norm_1", lambda h: attention(part(p, "attention"), h, h, H, allowed, config))
    if context is not None:
        x = sublayer(x, "norm_cross", lambda h: attention(part(p, "cross_attention"), h, context, H, seen))
    return sublayer(x, "norm_2", lambda h: feed_forward(part(p, "feed_forward"), h, config.activation))


def with_positions(p: P, x: Tensor, name: str) -> Tensor:
    T, d = x.shape[1:]
    if f"{name}.table" in p:
        return x + p[f"{name}.table"][:T]
    angle = torch.arange(T, dtype=x.dtype)[:, None] * 10000.0 ** (-torch.arange(0, d, 2, dtype=x.dtype) / d)
    return x + torch.stack([angle.sin(), angle.cos()], -1).flatten(1)[:, :d]


def stack(p: P, x: Tensor, config: Any, *rest: Any) -> Tensor:
    i = 0
    while any(name.startswith(f"blocks.{i}.") for name in p):
        x, i = block(part(p, f"blocks.{i}"), x, rest[0], config, *rest[1:]), i + 1
    last = part(p, "norm")
    return norm(last, x) if last else x


def gpt_loss(p: P, config: Any, ids: Tensor, targets: Tensor) -> Tensor:
    x = p["token_embedding.table"][ids]
    if config.positions == "learned":
        x = with_positions(p, x, "position_embedding")
    T = ids.shape[1]
    allowed = torch.ones(T, T, dtype=torch.bool).tril()
    if config.window is not None:
        allowed = allowed.triu(1 - config.window)
    x = stack(p, x, config, allowed)
    logits = x @ (p["token_embedding.table"].T if config.tie_weights else p["head.w"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def classifier_loss(p: P, config: Any, ids: Tensor, targets: Tensor) -> Tensor:
    visible, x = ids != config.pad_token, p["token_embedding.table"][ids]
    if config.pooling == "class_token":
        x = torch.cat([p["class_token"].expand(len(x), 1, -1), x], 1)
        visible = torch.cat([torch.ones(len(x), 1, dtype=torch.bool), visible], 1)
    x = stack(p, with_positions(p, x, "position_embedding"), config, visible[:, None, None])
    mean = torch.stack([row[seen].mean(0) for row, seen in zip(x, visible)])
    return F.cross_entropy((x[:, 0] if config.pooling == "class_token" else mean) @ p["head.w"] + p["head.b"], targets)


def seq2seq_loss(p: P, config: Any, source: Tensor, target: Tensor, targets: Tensor) -> Tensor:
    table = p["target_embedding.table"]
    scale, T = math.sqrt(config.d_model), target.shape[1]
    seen = (source != config.pad_token)[:, None, None]
    allowed = torch.ones(T, T, dtype=torch.bool).tril() & (target != config.pad_token)[:, None, None]
    encoder, decoder = part(p, "encoder"), part(p, "decoder")
    x = (table if config.share_embeddings else p["source_embedding.table"])[source] * scale
    context = stack(encoder, with_positions(encoder, x, "position_embedding"), config, seen)
    y = with_positions(decoder, table[target] * scale, "position_embedding")
    x = stack(decoder, y, config, allowed, context, seen)
    logits = x @ (table.T if config.tie_weights else p["head.w"])
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), label_smoothing=config.label_smoothing)


LOSSES = {na.GPTConfig: gpt_loss, na.SequenceClassifierConfig: classifier_loss, na.Seq2SeqConfig: seq2seq_loss}


def run(name: str) -> dict[str, np.ndarray]:
    """The losses of five AdamW steps, the first gradients, and the parameters afterwards."""
    model, batches = make(name)
    config = MODELS[name]
    p = {key: torch.tensor(value, requires_grad=True) for key, value in model.parameters().items()}
    groups = [{"params": [x for x in p.values() if x.ndim >= 2], "weight_decay": ADAMW["weight_decay"]},
              {"params": [x for x in p.values() if x.ndim < 2], "weight_decay": 0.0}]  # fmt: skip
    betas = (ADAMW["beta_1"], ADAMW["beta_2"])
    optimizer = torch.optim.AdamW(groups, lr=ADAMW["learning_rate"], betas=betas, eps=ADAMW["eps"])
    found: dict[str, np.ndarray] = {}
    losses = []
    for step, batch in enumerate(batches):
        optimizer.zero_grad()
        loss = LOSSES[type(config)](p, config, *map(torch.tensor, batch))
        loss.backward()
        losses.append(loss.item())
        if step == 0:
            found[f"{name}/gradients"] = flat(x.grad for x in p.values())
        optimizer.step()
    return found | {f"{name}/after": flat(p.values()), f"{name}/losses": np.array(losses)}


def flat(tensors: Iterable[Tensor]) -> np.ndarray:
    """All numbers in the order of the parameters, as one array: a hundred small arrays would be mostly headers."""
    return np.concatenate([x.detach().numpy().ravel() for x in tensors])


def main() -> None:
    found = {key: value for name in MODELS for key, value in run(name).items()}
    if sys.argv[1:] == ["--check"]:
        with np.load(FILE) as stored:
            assert set(stored.files) == set(found), "the stored numbers belong to other models; run without --check"
            for key, value in found.items():
                error = np.abs(stored[key] - value).max() / max(np.abs(value).max(), 1e-3)
                assert error < 1e-10, f"{key} has drifted by {error:.1e}"
        print(f"{len(found)} arrays of {FILE.name} are as PyTorch {torch.__version__} computes them")
    else:
        np.savez(FILE, **found)
        print(f"wrote {len(found)} arrays, {FILE.stat().st_size} bytes, to {FILE}")


if __name__ == "__main__":
    main()
