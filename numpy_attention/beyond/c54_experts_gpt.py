"""Chapter 54. A GPT with experts

The GPT of Chapter 49 with Experts (Chapter 53) in place of every feed-forward network. In training, the loss has two
more terms for each block, with small factors, on the logits of its router (Chapter 52):

    loss = cross-entropy + sum over the blocks of balance * load_balancing_loss + router_z * router_z_loss

Both are functions of the logits alone, so their gradients join the backward there: dlogits of a router is the sum of
three parts, one from y and one from each of them. If a batch is cut into shards (Chapters 28 and 30), the load is that
of a shard: another number of workers gives a slightly different loss.
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from numpy_attention.beyond.c52_router import (
    ORDERS,
    load_balancing_loss,
    load_balancing_loss_backward,
    router_z_loss,
    router_z_loss_backward,
)
from numpy_attention.beyond.c53_experts import Experts
from numpy_attention.layers.c13_layer import Parameters
from numpy_attention.layers.c20_block import Block, BlockCache
from numpy_attention.models.c21c_model import LossCache
from numpy_attention.models.c21d_recompute import SavedInput
from numpy_attention.ops.c11_losses import require_single
from numpy_attention.recent.c49_recent_gpt import RecentGPT, RecentGPTConfig


@dataclass(frozen=True)
class ExpertsGPTConfig(RecentGPTConfig):
    """The configuration of a GPT with experts; d_ff is the width of one expert, the activation is SwiGLU.

    Raises: ValueError for sizes or options that do not fit together.

    Source: Jiang et al., Mixtral of Experts (2024); the two losses: Fedus, Zoph, Shazeer, Switch Transformers (2022),
    and Zoph et al., ST-MoE (2022).
    """

    activation: str = "swiglu"
    num_experts: int = 8
    top_k: int = 2  # the experts that read a token
    router_order: str = "softmax_first"  # or "top_k_first"
    renormalize: bool = True  # the weights of the chosen experts sum to 1
    balance: float = 0.01  # the factor of the load balancing loss in training
    router_z: float = 0.0  # the factor of the z-loss in training

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check(qk_norm=(None, "head", "all"), router_order=ORDERS)
        if self.activation != "swiglu":
            raise self.wrong("activation", "swiglu", repr(self.activation))
        self.require("top_k", at_least=1, at_most=self.num_experts)
        self.require("balance", at_least=0)
        self.require("router_z", at_least=0)


class WithRouterLoss(NamedTuple):
    """What a block stored, and the gradient of the losses of its router."""

    saved: BlockCache | SavedInput
    dlogits: np.ndarray  # (N, E)

    def cache(self) -> BlockCache:
        """The cache of the block, with dlogits in the cache of its experts."""
        block = cache_of(self.saved)
        residual = block.feed_forward
        experts = residual.sublayer.sublayer._replace(dlogits=self.dlogits)
        return block._replace(feed_forward=residual._replace(sublayer=residual.sublayer._replace(sublayer=experts)))


def cache_of(saved: BlockCache | SavedInput) -> BlockCache:
    """The cache of a block, which runs again if it stored only its input."""
    return saved.cache() if isinstance(saved, SavedInput) else saved


class ExpertsGPT(RecentGPT):
    """A GPT with experts in place of each feed-forward network.

    Shapes: ids (B, T) -> logits (B, T, V), T at most context_length.

    Source: as `ExpertsGPTConfig`.
    """

    config_class: ClassVar[Any] = ExpertsGPTConfig

    def new_blocks(self, dtype: Any) -> list[Block]:
        c, blocks = self.config, super().new_blocks(dtype)
        sizes = c.d_model, c.hidden_width(), c.num_experts, c.top_k
        for block in blocks:
            layer: Any = Experts(*sizes, None, c.router_order, c.renormalize, c.dropout, dtype)
            block.feed_forward = layer
        return blocks

    def loss(
        self, ids: np.ndarray, targets: np.ndarray, training: bool = False, rng: np.random.Generator | None = None
    ) -> tuple[np.ndarray, LossCache]:
        """The cross-entropy in nats; with `training`, also the losses of the routers."""
        loss, cache = super().loss(ids, targets, training, rng)
        c = self.config
        if not training or not (c.balance or c.router_z) or not ids.size:
            return loss, cache
        stack, blocks = cache.forward.stack, []
        for saved in stack.blocks:
            logits = cache_of(saved).feed_forward.sublayer.sublayer.logits  # (N, E)
            balance, of_balance = load_balancing_loss(logits, c.top_k)
            loss = loss + c.balance * balance
            dlogits = load_balancing_loss_backward(c.balance, of_balance)
            if c.router_z:
                z, of_z = router_z_loss(logits)
                loss = loss + c.router_z * z
                dlogits += router_z_loss_backward(c.router_z, of_z)
            one = WithRouterLoss(saved, dlogits)
            blocks.append(one if stack.recompute else one.cache())
        return loss, cache._replace(forward=cache.forward._replace(stack=stack._replace(blocks=blocks)))

    def backward(self, cache: LossCache, dloss: float = 1.0) -> Parameters:
        require_single("ExpertsGPT", dloss)
        grads = super().backward(cache)  # of all terms of the loss, for dloss = 1
        return {name: (dloss * g).astype(g.dtype) for name, g in grads.items()}
