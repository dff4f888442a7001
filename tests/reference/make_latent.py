"""Computes the reference results of latent attention, with the layers of `transformers` on PyTorch, in float64.

    python tests/reference/make_latent.py            # writes latent.npz in this folder

The layers are those of DeepSeek-V2 (without a latent of the queries, as in DeepSeek-V2-Lite) and of DeepSeek-V3, with
tiny sizes and random parameters. The script needs the dependency group `reference`; the test that reads the results
(tests/recent/test_latent_attention.py) does not.
"""

import sys
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from transformers.models.deepseek_v2 import modeling_deepseek_v2 as v2
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as v3

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.reference.make_pretrained import in_float64

PATH = Path(__file__).with_name("latent.npz")
SIZES = {
    "hidden_size": 6, "num_attention_heads": 3, "num_key_value_heads": 3, "kv_lora_rank": 5, "qk_nope_head_dim": 3,
    "qk_rope_head_dim": 4, "head_dim": 4, "v_head_dim": 2,
}
CASES = {
    "v2": (v2.DeepseekV2Config, v2.DeepseekV2Attention, v2.DeepseekV2RotaryEmbedding, None),
    "v3": (v3.DeepseekV3Config, v3.DeepseekV3Attention, v3.DeepseekV3RotaryEmbedding, 7),
}


def vectors() -> dict[str, np.ndarray]:
    """Parameters, inputs, results and gradients of each case."""
    rng, found = np.random.default_rng(45), {}

    def drawn(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.from_numpy(rng.standard_normal(shape))

    for name, (config_class, layer_class, rotary_class, q_rank) in CASES.items():
        config = config_class(**SIZES, q_lora_rank=q_rank, attn_implementation="eager")
        with in_float64(), mock.patch.object(torch.Tensor, "float", lambda x: x.double().contiguous()):
            layer, rotary = layer_class(config, 0).double(), rotary_class(config)
            for p in layer.parameters():
                p.data = drawn(tuple(p.shape)) / p.shape[-1] ** 0.5
            x, positions = drawn((2, 5, 6)).requires_grad_(), torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 11, 40]])
            hidden = torch.full((5, 5), float("-inf"), dtype=torch.float64).triu(1)[None, None]
            y = layer(hidden_states=x, attention_mask=hidden, position_embeddings=rotary(x, positions))[0]
            dy = drawn(tuple(y.shape))
            y.backward(dy)
        arrays = {"x": x, "positions": positions, "y": y, "dy": dy, "dx": x.grad}
        for key, p in layer.named_parameters():
            arrays |= {key: p, f"d{key}": p.grad}
        found |= {f"{name}/{key}": array.detach().numpy() for key, array in arrays.items()}
    return found


if __name__ == "__main__":
    np.savez_compressed(PATH, **vectors())
