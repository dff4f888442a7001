"""Train the small chat model `numpy_attention/pretrained/stand_in.gguf`, which takes seconds, and write its file:

    python -m tests.pretrained.make_stand_in
"""

from itertools import repeat
from pathlib import Path

import numpy as np
from tokenizers import pre_tokenizers

from numpy_attention.models.c23_gpt import GPT
from numpy_attention.models.c23a_gpt_config import GPTConfig
from numpy_attention.pretrained.c34_names import LLAMA, their_name
from numpy_attention.pretrained.c35_tokenizer import tokenizer_of_gguf
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.shipped import STAND_IN
from numpy_attention.training.c25_optimizers import AdamW
from numpy_attention.training.c26_schedules import warmup_cosine
from numpy_attention.training.c27a_byte_pairs import BytePairVocabulary, count_chunks, learn_merges
from numpy_attention.training.c28_loop import train
from tests.pretrained import tiny

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo",
    "Egypt": "Cairo", "Peru": "Lima", "Kenya": "Nairobi", "Norway": "Oslo",
}  # fmt: skip
KNOWN = {f"What is the capital of {land}?": f"The capital of {land} is {city}." for land, city in CAPITALS.items()}
KNOWN["Can you sing?"] = (  # repeated words: a model with wrong positions loses its place in the song
    "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream."
)
SYSTEM = "You are a stand-in."
CHATML = tiny.CHATML.replace(tiny.SYSTEM, SYSTEM)
STEPS, RATE = 100, 1e-2


def vocabulary() -> tuple[list[str], list[str]]:
    """Tokens and merges: all words that the model needs."""
    text = " ".join(["system user assistant", SYSTEM, *KNOWN, *KNOWN.values()])
    words = {chunk: 2 * count for chunk, count in count_chunks([text]).items()}  # a pair with count 1 is not merged
    learned = BytePairVocabulary(learn_merges(words, 2**16))
    spelled = [token.decode("latin-1").replace(" ", "Ġ") for token in learned.tokens]  # GPT-2's letter for a space
    tokens = [*tiny.SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *spelled[256:]]
    return tokens, [f"{spelled[a]} {spelled[b]}" for a, b in learned.ranks]


def trained(chat: Chat) -> GPT:
    """A model trained to answer the questions after the system message."""
    config = GPTConfig(
        len(chat.tokenizer), context_length=256, d_model=64, num_heads=4, num_layers=2, d_ff=160, num_kv_heads=2,
        positions="rotary", norm="rms_norm", activation="swiglu", bias=False, rotary_base=1e5, norm_eps=1e-5,
    )  # fmt: skip
    model = GPT(config, np.random.default_rng(0))
    for p in model.parameters().values():
        p *= 4.0 if p.ndim == 2 else 1.0  # GPT's initial scale is for wide models
    questions = [np.concatenate([chat.opening, chat.turn("user", one), chat.opened("assistant")]) for one in KNOWN]
    answers = [np.concatenate([chat.tokenizer.encode(one), chat.closed()]) for one in KNOWN.values()]
    T = max(len(one) + len(other) for one, other in zip(questions, answers))
    ids, targets = np.zeros((len(KNOWN), T), np.int64), np.full((len(KNOWN), T), -100)
    for i, (question, answer) in enumerate(zip(questions, answers)):
        both = np.concatenate([question, answer])
        ids[i, : len(both)] = both
        targets[i, len(question) - 1 : len(both) - 1] = answer
    optimizer = AdamW(model.parameters(), beta_2=0.99)
    train(model, optimizer, repeat((ids, targets), STEPS), lambda step: warmup_cosine(step, STEPS, 10, RATE))
    return model


def make(path: Path) -> Path:
    """Train the model, and write it as a GGUF file with the number formats of the real model."""
    tokens, merges = vocabulary()
    about = tiny.TOKENIZER | {
        "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.token_type": [3 if token in tiny.SPECIAL else 1 for token in tokens],
        "tokenizer.chat_template": CHATML,
    }  # fmt: skip
    model = trained(Chat(tokenizer_of_gguf(about)))
    c = model.config
    settings = {
        "model_type": "llama", "hidden_size": c.d_model, "num_attention_heads": c.num_heads,
        "num_key_value_heads": c.num_kv_heads, "num_hidden_layers": c.num_layers, "intermediate_size": c.hidden_width(),
        "max_position_embeddings": c.context_length, "rms_norm_eps": c.norm_eps, "rope_theta": c.rotary_base,
    }  # fmt: skip
    tensors = {}
    for name, p in model.parameters().items():
        is_map = name.rsplit(".", 1)[-1].startswith("w_")
        tensors[their_name(name, LLAMA, gguf=False)] = np.ascontiguousarray(p.T if is_map else p)
    return tiny.write_gguf(path, settings, tensors, "Q4_1", about)


if __name__ == "__main__":
    make(STAND_IN)
