"""Part V. A stand-in: a small file that replaces a real model

The tutorials about real models need a file of a hundred megabytes. If it has not been fetched, the tutorials use this
stand-in: a llama in a GGUF file, with the same names, number formats, special tokens and ChatML template, but with only
two blocks and d_model = 64. Random parameters would give random text, so the model first learns nine answers by heart,
which takes seconds.
"""

from collections.abc import Iterator
from itertools import repeat
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.files import atomic_write
from numpy_attention.models.gpt import GPT
from numpy_attention.models.gpt_config import GPTConfig
from numpy_attention.pretrained.chat import Chat
from numpy_attention.pretrained.gguf_files import package
from numpy_attention.pretrained.names import LLAMA, their_name
from numpy_attention.pretrained.tokenizer import CONTROL, tokenizer_of_gguf
from numpy_attention.training.byte_pairs import BytePairVocabulary, count_chunks, learn_merges
from numpy_attention.training.loop import train
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.schedules import warmup_cosine

CAPITALS = {
    "France": "Paris", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo",
    "Egypt": "Cairo", "Peru": "Lima", "Kenya": "Nairobi", "Norway": "Oslo",
}
KNOWN = {f"What is the capital of {land}?": f"The capital of {land} is {city}." for land, city in CAPITALS.items()}
KNOWN["Can you sing?"] = (  # repeated words: a model with wrong positions loses its place in the song
    "Row, row, row your boat, gently down the stream. Merrily, merrily, merrily, merrily, life is but a dream."
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
SYSTEM = "You are a stand-in."
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    f"{{{{ '<|im_start|>system\n{SYSTEM}<|im_end|>\n' }}}}{{% endif %}}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
STEPS, RATE = 100, 1e-2


def write_stand_in(path: str | PathLike[str]) -> Path:
    """Train a tiny llama on its answers, and write it as a GGUF file.

    Raises: InputError without the packages gguf and tokenizers.
    """
    gguf = package("gguf", "GGUF files")
    vocabulary = _tokenizer()
    model = _trained(Chat(tokenizer_of_gguf(vocabulary)))
    c = model.config
    settings = {
        "llama.block_count": c.num_layers, "llama.context_length": c.context_length,
        "llama.embedding_length": c.d_model, "llama.feed_forward_length": c.hidden_width(),
        "llama.attention.head_count": c.num_heads, "llama.attention.head_count_kv": c.num_kv_heads,
        "llama.attention.layer_norm_rms_epsilon": c.norm_eps, "llama.rope.freq_base": c.rotary_base,
    } | vocabulary
    with atomic_write(path) as temporary:
        writer = gguf.GGUFWriter(temporary, "llama")
        adds = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32, list: writer.add_array}
        for name, value in settings.items():
            adds[type(value)](name, value)
        for name, array, kind in _tensors(model):
            quantized = gguf.GGMLQuantizationType[kind]
            writer.add_tensor(name, gguf.quantize(array, quantized), raw_dtype=quantized)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    return Path(path)


def _tokenizer() -> dict[str, Any]:
    """The settings of a vocabulary with all words that the model needs."""
    text = " ".join(["system user assistant", SYSTEM, *KNOWN, *KNOWN.values()])
    words = {chunk: 2 * count for chunk, count in count_chunks([text]).items()}  # a pair with count 1 is not merged
    vocabulary = BytePairVocabulary(learn_merges(words, 2**16))
    spelled = [token.decode("latin-1").replace(" ", "Ġ") for token in vocabulary.tokens]  # GPT-2's letter for a space
    tokenizers = package("tokenizers", "pretrained models")
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    tokens = [*SPECIAL, *letters, *spelled[256:]]
    kinds = [CONTROL if token in SPECIAL else 1 for token in tokens]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": kinds, "tokenizer.ggml.eos_token_id": SPECIAL.index("<|im_end|>"),
        "tokenizer.ggml.merges": [f"{spelled[a]} {spelled[b]}" for a, b in vocabulary.ranks],
        "tokenizer.chat_template": CHATML,
    }


def _trained(chat: Chat) -> GPT:
    """A model trained to answer the questions after the system message."""
    rng = np.random.default_rng(0)
    config = GPTConfig(
        len(chat.tokenizer), context_length=256, d_model=64, num_heads=4, num_layers=2, d_ff=160, num_kv_heads=2,
        positions="rotary", norm="rms_norm", activation="swiglu", bias=False, rotary_base=1e5, norm_eps=1e-5,
    )
    model = GPT(config, rng)
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


def _tensors(model: GPT) -> Iterator[tuple[str, np.ndarray, str]]:
    """Name, numbers and number format of each tensor in a GGUF file (the inverse of Chapter 34)."""
    for name, p in model.parameters().items():
        last = name.rsplit(".", 1)[-1]
        if last in ("w_q", "w_k"):  # reorder the rows to interleaved pairs
            d_k = model.config.d_model // model.config.num_heads
            halves = p.reshape(len(p), -1, 2, d_k // 2)  # (d_in, H, 2, d_k / 2)
            p = halves.swapaxes(-1, -2).reshape(p.shape)
        array = np.ascontiguousarray(p.T if last.startswith("w_") else p)
        kind = "Q4_1" if last.startswith("w_") else "Q8_0" if last == "table" else "F32"
        yield their_name(name, LLAMA, gguf=True), array, kind
