"""The same work as its users write it with PyTorch and transformers: fused attention, fused AdamW, float32."""

import functools
import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from numpy_attention.models import GPT
from numpy_attention.pretrained.c37_low_rank import add_low_rank
from numpy_attention.pretrained.fetch import located
from tests.benchmarks.ours import (
    BETA_2,
    DECAY,
    MODEL,
    RANK,
    RATE,
    Batch,
    Case,
    Work,
    heads_of,
    lora_batches,
    model_and_batches,
    norm,
    real_model,
    steps,
)


def make(case: Case, variant: str, threads: int) -> Work:
    torch.set_num_threads(threads)
    if case["kind"] == "attention":
        return attention(case["T"])
    if case["kind"] == "pretrained":
        return pretrained(case)
    ours, batches = model_and_batches(case["name"])
    device = "cuda" if case.get("backend") == "cupy" else "cpu"
    model = TorchGPT(ours).to(device)
    return training(model, model.parameters(), batches, device)


def training(loss_of: Callable[..., Tensor], parameters: Iterable[Tensor], batches: list[Batch], device: str) -> Work:
    """Steps with AdamW; weight decay acts on matrices, not on vectors."""
    known = list(parameters)
    groups: list[dict[str, Any]] = [
        {"params": [p for p in known if p.dim() > 1], "weight_decay": DECAY},
        {"params": [p for p in known if p.dim() == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, betas=(0.9, BETA_2), fused=True)

    def step(batch: Batch) -> float:
        optimizer.zero_grad(set_to_none=True)
        loss = loss_of(*(torch.from_numpy(array).to(device) for array in batch))
        loss.backward()
        optimizer.step()
        return loss.item()

    return steps(step, batches)


def attention(T: int) -> Work:
    """Causal attention, forward and backward."""
    *qkv, dy = (torch.from_numpy(x)[None] for x in heads_of(T).values())
    q, k, v = (x.requires_grad_() for x in qkv)

    def call() -> list[Tensor]:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return [y, *torch.autograd.grad(y, [q, k, v], dy)]

    return Work(call, lambda: [norm(x.detach().numpy()) for x in call()])


class Block(nn.Module):
    """x + attention(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.norm_1 = nn.LayerNorm(d_model)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.out = nn.Linear(d_model, d_model)
        self.norm_2 = nn.LayerNorm(d_model)
        self.up = nn.Linear(d_model, 4 * d_model)
        self.down = nn.Linear(4 * d_model, d_model)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.num_heads, -1))  # (B, T, 3, H, d_k)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class TorchGPT(nn.Module):
    """Our GPT with our weights: pre-norm, learned positions, tied weights; q, k and v in one product."""

    def __init__(self, ours: GPT) -> None:
        super().__init__()
        c = ours.config
        self.tokens = nn.Embedding(c.vocab_size, c.d_model)
        self.positions = nn.Embedding(c.context_length, c.d_model)
        self.blocks = nn.ModuleList(Block(c.d_model, c.num_heads) for _ in range(c.num_layers))
        self.norm = nn.LayerNorm(c.d_model)
        with torch.no_grad():
            self._copy(ours.parameters())

    def _copy(self, p: dict[str, np.ndarray]) -> None:
        def put(target: Tensor, *names: str) -> None:
            arrays = [p[name].T if p[name].ndim == 2 and "table" not in name else p[name] for name in names]
            target.copy_(torch.from_numpy(np.concatenate(arrays)))

        put(self.tokens.weight, "token_embedding.table")
        put(self.positions.weight, "position_embedding.table")
        put(self.norm.weight, "norm.gamma")
        put(self.norm.bias, "norm.beta")
        for i, block in enumerate(self.blocks):
            at = f"blocks.{i}."
            put(block.qkv.weight, *(f"{at}attention.w_{x}" for x in "qkv"))
            put(block.qkv.bias, *(f"{at}attention.b_{x}" for x in "qkv"))
            for linear, name in ((block.out, "attention.{}_o"), (block.up, "feed_forward.{}_1"),
                                 (block.down, "feed_forward.{}_2")):  # fmt: skip
                put(linear.weight, at + name.format("w"))
                put(linear.bias, at + name.format("b"))
            for n in ("1", "2"):
                put(getattr(block, f"norm_{n}").weight, f"{at}norm_{n}.gamma")
                put(getattr(block, f"norm_{n}").bias, f"{at}norm_{n}.beta")

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def pretrained(case: Case) -> Work:
    """SmolLM2 in transformers, with its attention and its KV cache."""
    model, (ours, ids) = llama(), real_model()
    if case["name"] == "LoRA step":
        add_low_rank(ours, RANK, rng=np.random.default_rng(0))
        adapters = add_adapters(model, ours.parameters())

        def loss_of(ids: Tensor, targets: Tensor) -> Tensor:
            logits = model(ids, use_cache=False).logits
            return F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        return training(loss_of, adapters, lora_batches(ids, case["tokens"]), "cpu")
    prompt, written = (ids[: case["tokens"]], 1) if case["name"] == "prompt" else (ids[:16], case["tokens"])
    row = torch.from_numpy(prompt[None])
    return Work(lambda: greedy(model, row, written), lambda: greedy(model, row, min(written, 32)))


@functools.cache
def llama() -> Any:
    """The model of the GGUF file, in float32."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    from transformers import LlamaForCausalLM, logging

    logging.disable_progress_bar()
    path = located(MODEL)
    return LlamaForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32).eval()


@torch.inference_mode()
def greedy(model: Any, ids: Tensor, num_tokens: int) -> list[float]:
    """The most likely tokens, one by one; this loop is faster than `generate` with its options."""
    found: list[float] = []
    past = None
    for _ in range(num_tokens):
        out = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        past, ids = out.past_key_values, out.logits[:, -1:].argmax(-1)
        found.append(float(ids))
    return found


class LowRank(nn.Module):
    """x w + scale (x a) b, with w frozen: the same computation as in the package peft."""

    def __init__(self, linear: nn.Linear, a: np.ndarray, b: np.ndarray, scale: float = 2.0) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        self.a, self.b = nn.Parameter(torch.from_numpy(a)), nn.Parameter(torch.from_numpy(b))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x @ self.a * self.scale) @ self.b


def add_adapters(model: Any, ours: dict[str, np.ndarray]) -> list[Tensor]:
    """Replace the seven matrices of each block by layers with our low-rank matrices; the new parameters."""
    names = {"attention.w_q": "self_attn.q_proj", "attention.w_k": "self_attn.k_proj",
             "attention.w_v": "self_attn.v_proj", "attention.w_o": "self_attn.o_proj",
             "feed_forward.w_gate": "mlp.gate_proj", "feed_forward.w_1": "mlp.up_proj",
             "feed_forward.w_2": "mlp.down_proj"}  # fmt: skip
    model.requires_grad_(False)
    for i, block in enumerate(model.model.layers):
        for mine, name in names.items():
            part, _, attribute = name.partition(".")
            owner, at = getattr(block, part), f"blocks.{i}.{mine}"
            setattr(owner, attribute, LowRank(getattr(owner, attribute), ours[f"{at}.a"], ours[f"{at}.b"]))
    return [p for p in model.train().parameters() if p.requires_grad]
