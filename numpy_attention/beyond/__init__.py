"""Part VIII. Beyond the next token: rewards, experts, Muon, and a gradient that is wrong on purpose."""

from numpy_attention.beyond.c50_preferences import (
    bradley_terry_loss,
    bradley_terry_loss_backward,
    dpo_loss,
    dpo_loss_backward,
    sequence_log_probability,
    sequence_log_probability_backward,
)
from numpy_attention.beyond.c51_policy import clipped_policy_loss, clipped_policy_loss_backward, group_advantages
from numpy_attention.beyond.c52_router import (
    load_balancing_loss,
    load_balancing_loss_backward,
    route,
    route_backward,
    router_z_loss,
    router_z_loss_backward,
)
from numpy_attention.beyond.c53_experts import Experts
from numpy_attention.beyond.c54_experts_gpt import ExpertsGPT, ExpertsGPTConfig
from numpy_attention.beyond.c55_muon import Muon, orthogonalized
from numpy_attention.beyond.c56_straight_through import fake_quantize, fake_quantize_backward

__all__ = [
    "sequence_log_probability", "sequence_log_probability_backward",
    "bradley_terry_loss", "bradley_terry_loss_backward", "dpo_loss", "dpo_loss_backward",
    "group_advantages", "clipped_policy_loss", "clipped_policy_loss_backward",
    "route", "route_backward", "load_balancing_loss", "load_balancing_loss_backward",
    "router_z_loss", "router_z_loss_backward", "Experts", "ExpertsGPT", "ExpertsGPTConfig", "Muon", "orthogonalized",
    "fake_quantize", "fake_quantize_backward",
]
