"""The cases of the kind `pretrained` with transformers on PyTorch: float32, its attention (SDPA) and its KV cache.

The weights come from the same GGUF file; the package gguf dequantizes them and maps their names. The rows of the query
and key matrices are reordered, because transformers rotates the two halves of a head. The LoRA step computes the same
as the package peft, without the package: frozen weights have no gradient, and a layer replaces each of the seven
matrices of a block.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    raise ImportError("PyTorch is not installed: pip install '.[bench]'") from None
try:
    from transformers import LlamaConfig, LlamaForCausalLM
except ImportError:
    raise ImportError("transformers is not installed: pip install transformers") from None
import gguf
from torch import Tensor, nn
from torch.nn import functional as F

from numpy_attention.pretrained.fetch import located
from numpy_attention.pretrained.gguf_files import read_gguf
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.tokenizer import tokenizer_of_gguf
from tests.benchmarks.pretrained import (
    FIRST_PROMPT,
    MODEL,
    SHORT_PROMPT,
    batches,
    first_word,
    summary,
    text_ids,
    with_low_rank,
)
from tests.benchmarks.work import BETA_2, DECAY, RATE, Case, Work

PARTS = {  # in a block: our name, their name
    "attention.w_q": "self_attn.q_proj", "attention.w_k": "self_attn.k_proj", "attention.w_v": "self_attn.v_proj",
    "attention.w_o": "self_attn.o_proj", "feed_forward.w_gate": "mlp.gate_proj", "feed_forward.w_1": "mlp.up_proj",
    "feed_forward.w_2": "mlp.down_proj",
}  # fmt: skip

# the program of a user, with only the necessary imports
FIRST_WORD = """
import sys, tokenizers, torch
from transformers import LlamaForCausalLM
folder, prompt, threads = sys.argv[1:]
torch.set_num_threads(int(threads))
tokenizer = tokenizers.Tokenizer.from_file(folder + "/tokenizer.json")
model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
ids = tokenizer.encode(prompt).ids
with torch.inference_mode():
    ids.append(int(model(torch.tensor([ids]), logits_to_keep=1).logits.argmax()))
print(tokenizer.decode(ids))
"""


def make(case: Case, variant: str, threads: int) -> Work:
    torch.set_num_threads(threads)
    path = located(MODEL)
    model = llama_in(path)
    if case["name"] == "first word":
        return _first_word(model, path, threads)
    ids = text_ids(path)
    if case["name"] == "LoRA step":
        adapter = with_low_rank(load_pretrained(path).model).parameters()
        return _low_rank_step(model, adapter, batches(ids, case["tokens"]))
    if case["name"] == "generation":
        prompt = torch.from_numpy(ids[None, :SHORT_PROMPT])
        return Work(
            lambda: greedy(model, prompt, case["tokens"]),
            lambda: [float(token) for token in greedy(model, prompt, 32)],
        )
    prompt = torch.from_numpy(ids[None, : case["tokens"]])
    return Work(lambda: last_logits(model, prompt), lambda: summary(last_logits(model, prompt).numpy()))


def llama_in(path: Path) -> Any:
    """The model of a GGUF file."""
    settings, stored = read_gguf(path)
    llama = {name.removeprefix("llama."): value for name, value in settings.items()}
    config = LlamaConfig(
        vocab_size=len(llama["tokenizer.ggml.tokens"]), hidden_size=llama["embedding_length"],
        intermediate_size=llama["feed_forward_length"], num_hidden_layers=llama["block_count"],
        num_attention_heads=llama["attention.head_count"], num_key_value_heads=llama["attention.head_count_kv"],
        max_position_embeddings=llama["context_length"], rms_norm_eps=llama["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": llama["rope.freq_base"]}, tie_word_embeddings=True,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    with torch.no_grad():
        for name, p in model.named_parameters():  # the head is tied to the table, so it occurs only once
            array = stored[names.get_name(name, (".weight",))].read()
            if "q_proj" in name or "k_proj" in name:
                pairs = array.reshape(-1, config.head_dim // 2, 2, config.hidden_size)
                array = pairs.swapaxes(1, 2).reshape(array.shape)
            p.copy_(torch.from_numpy(np.array(array)))
    return model


@torch.inference_mode()
def last_logits(model: Any, ids: Tensor) -> Tensor:
    return model(ids, use_cache=True, logits_to_keep=1).logits[0, -1]


@torch.inference_mode()
def greedy(model: Any, ids: Tensor, num_tokens: int) -> list[int]:
    """Append the most likely token, num_tokens times; this loop is faster than `generate` with its options."""
    found: list[int] = []
    past = None
    for _ in range(num_tokens):
        out = model(ids, past_key_values=past, use_cache=True, logits_to_keep=1)
        past = out.past_key_values
        ids = out.logits[:, -1:].argmax(-1)
        found.append(int(ids))
    return found


class LowRank(nn.Module):
    """x w + scale (x a) b, with w frozen."""

    def __init__(self, linear: nn.Linear, a: np.ndarray, b: np.ndarray, scale: float) -> None:
        super().__init__()
        self.linear, self.scale = linear, scale
        self.a, self.b = nn.Parameter(torch.from_numpy(a)), nn.Parameter(torch.from_numpy(b))

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + (x @ self.a * self.scale) @ self.b


def _low_rank_step(model: Any, adapter: dict[str, np.ndarray], batches: list[tuple[np.ndarray, np.ndarray]]) -> Work:
    model.requires_grad_(False)
    for i, block in enumerate(model.model.layers):
        for ours, theirs in PARTS.items():
            part, name = theirs.split(".")
            owner, at = getattr(block, part), f"blocks.{i}.{ours}"
            setattr(owner, name, LowRank(getattr(owner, name), adapter[f"{at}.a"], adapter[f"{at}.b"], 2.0))
    model.train()
    parameters = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, betas=(0.9, BETA_2), weight_decay=DECAY, fused=True)
    turns = iter(range(10**9))

    def step() -> float:
        ids, targets = (torch.from_numpy(array) for array in batches[next(turns) % len(batches)])
        optimizer.zero_grad(set_to_none=True)
        logits = model(ids, use_cache=False).logits
        loss = F.cross_entropy(logits.flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        return loss.item()

    return Work(step, lambda: [step() for _ in range(3)])


def _first_word(model: Any, path: Path, threads: int) -> Work:
    folder = tempfile.TemporaryDirectory()  # deleted when this process ends
    model.save_pretrained(folder.name)
    settings, _ = read_gguf(path)
    tokenizer_of_gguf(settings).tokenizer.save(str(Path(folder.name) / "tokenizer.json"))
    command = [sys.executable, "-c", FIRST_WORD, folder.name, FIRST_PROMPT, str(threads)]
    work = first_word(command, threads)
    return work._replace(call=lambda: (folder, work.call()))  # the folder exists as long as the work
