"""Our GPT in PyTorch, as users write it: q, k, v in one product, SDPA, fused AdamW; the weights are ours."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from numpy_attention.models import GPT


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
        heads = self.qkv(self.norm_1(x)).unflatten(-1, (3, self.num_heads, -1))   # (B, T, 3, H, d_k)
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.norm_2(x)), approximate="tanh"))


class TorchGPT(nn.Module):
    """Decoder-only, learned positions, pre-norm, tied weights."""

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
            put(block.out.weight, f"{at}attention.w_o")
            put(block.out.bias, f"{at}attention.b_o")
            put(block.up.weight, f"{at}feed_forward.w_1")
            put(block.up.bias, f"{at}feed_forward.b_1")
            put(block.down.weight, f"{at}feed_forward.w_2")
            put(block.down.bias, f"{at}feed_forward.b_2")
            for n in ("1", "2"):
                put(getattr(block, f"norm_{n}").weight, f"{at}norm_{n}.gamma")
                put(getattr(block, f"norm_{n}").bias, f"{at}norm_{n}.beta")

    def forward(self, ids: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(ids) + self.positions.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = F.linear(self.norm(x), self.tokens.weight)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


class TorchRun:
    """The model and its optimizer; weight decay acts on matrices, not on vectors."""

    def __init__(self, ours: GPT, learning_rate: float, beta_2: float, weight_decay: float, clip: float = 0.0) -> None:
        self.model, self.clip = TorchGPT(ours), clip
        parameters = list(self.model.parameters())
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(groups, lr=learning_rate, betas=(0.9, beta_2), fused=True)

    def step(self, ids: np.ndarray, targets: np.ndarray, learning_rate: float | None = None) -> float:
        for group in self.optimizer.param_groups if learning_rate is not None else []:
            group["lr"] = learning_rate
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model(torch.from_numpy(ids), torch.from_numpy(targets))
        loss.backward()
        if self.clip:
            nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        self.optimizer.step()
        return loss.item()

    def loss(self, ids: np.ndarray, targets: np.ndarray) -> float:
        with torch.no_grad():
            return self.model(torch.from_numpy(ids), torch.from_numpy(targets)).item()
