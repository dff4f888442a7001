"""Tiny checkpoints in the formats of other programs: all sizes are different, and every number is random. The tests
read them, and `tests/reference/make_pretrained.py` reads them with PyTorch.
"""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors

from numpy_attention.pretrained import stand_in
from numpy_attention.pretrained.stand_in import SPECIAL

MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ a", "s e", "se r", "u ser", "Ġ w", "o r", "Ġw or", "1 2"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(pair.replace(" ", "") for pair in MERGES)]
V = len(TOKENS)
CHATML = stand_in.CHATML.replace(stand_in.SYSTEM, "The other 12 users answer.")
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abdeinorst", *(f"##{c}" for c in "abdeinorst"), "the", "rain", "bread"]

Tensors = dict[str, np.ndarray]
Settings = dict[str, Any]

LLAMA: Settings = {
    "model_type": "llama", "vocab_size": V, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 40, "max_position_embeddings": 37, "rms_norm_eps": 1e-3,
    "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
BLOCKS_OF_32 = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}  # sizes that can be quantized
GPT2: Settings = {
    "model_type": "gpt2", "vocab_size": V, "n_embd": 20, "n_head": 5, "n_layer": 3, "n_positions": 17, "n_inner": 28,
    "layer_norm_epsilon": 1e-4, "activation_function": "gelu_new",
}  # fmt: skip
BERT: Settings = {
    "model_type": "bert", "vocab_size": len(WORDS), "hidden_size": 18, "num_attention_heads": 3, "num_hidden_layers": 2,
    "intermediate_size": 26, "max_position_embeddings": 15, "type_vocab_size": 2, "layer_norm_eps": 1e-6,
    "hidden_act": "gelu", "pad_token_id": 0, "position_embedding_type": "absolute",
}  # fmt: skip


def drawn(shapes: dict[str, tuple[int, ...]], rng: np.random.Generator) -> Tensors:
    """Random tensors: gammas around one, all others around zero."""
    centre = {name: float("norm" in name.lower() or "ln_" in name) * (not name.endswith("bias")) for name in shapes}
    return {
        name: (centre[name] + 0.3 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes.items()
    }  # fmt: skip


def llama(settings: Settings, rng: np.random.Generator) -> Tensors:
    """A llama, or a qwen2, which has biases."""
    d, ff, H = settings["hidden_size"], settings["intermediate_size"], settings["num_attention_heads"]
    kv = d // H * settings["num_key_value_heads"]
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, d), "model.norm.weight": (d,)}
    if not settings["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, d)
    for i in range(settings["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {at + "input_layernorm.weight": (d,), at + "post_attention_layernorm.weight": (d,)}
        for name, width in (("q", d), ("k", kv), ("v", kv)):
            shapes[at + f"self_attn.{name}_proj.weight"] = (width, d)
            if settings["model_type"] == "qwen2":
                shapes[at + f"self_attn.{name}_proj.bias"] = (width,)
        shapes |= {
            at + "self_attn.o_proj.weight": (d, d), at + "mlp.gate_proj.weight": (ff, d),
            at + "mlp.up_proj.weight": (ff, d), at + "mlp.down_proj.weight": (d, ff),
        }  # fmt: skip
    return drawn(shapes, rng)


def gpt2(settings: Settings, rng: np.random.Generator) -> Tensors:
    d, ff = settings["n_embd"], settings["n_inner"]
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (V, d), "wpe.weight": (settings["n_positions"], d)}
    parts = {"attn.c_attn": (d, 3 * d), "attn.c_proj": (d, d), "mlp.c_fc": (d, ff), "mlp.c_proj": (ff, d)}
    for i in range(settings["n_layer"]):
        for name, shape in parts.items():
            shapes |= {f"h.{i}.{name}.weight": shape, f"h.{i}.{name}.bias": shape[1:]}
        for name in ("ln_1", "ln_2"):
            shapes |= {f"h.{i}.{name}.weight": (d,), f"h.{i}.{name}.bias": (d,)}
    shapes |= {"ln_f.weight": (d,), "ln_f.bias": (d,)}
    return {f"transformer.{name}": array for name, array in drawn(shapes, rng).items()}


def bert(settings: Settings, rng: np.random.Generator) -> Tensors:
    """A BERT with a pooler, as in real files; the text encoder does not use it."""
    d, ff = settings["hidden_size"], settings["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (len(WORDS), d),
        "embeddings.position_embeddings.weight": (settings["max_position_embeddings"], d),
        "embeddings.token_type_embeddings.weight": (2, d), "embeddings.LayerNorm.weight": (d,),
        "embeddings.LayerNorm.bias": (d,), "pooler.dense.weight": (d, d), "pooler.dense.bias": (d,),
    }  # fmt: skip
    parts = {f"attention.self.{name}": (d, d) for name in ("query", "key", "value")}
    parts |= {"attention.output.dense": (d, d), "intermediate.dense": (ff, d), "output.dense": (d, ff)}
    for i in range(settings["num_hidden_layers"]):
        at = f"encoder.layer.{i}."
        for name, shape in parts.items():
            shapes |= {f"{at}{name}.weight": shape, f"{at}{name}.bias": shape[:1]}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}{name}.weight": (d,), f"{at}{name}.bias": (d,)}
    return drawn(shapes, rng)


MAKERS = {"llama": llama, "qwen2": llama, "gpt2": gpt2, "bert": bert}


def tensors_of(name: str, settings: Settings) -> Tensors:
    """The tensors of a checkpoint; the keys are their names in a folder."""
    return MAKERS[settings["model_type"]](settings, np.random.default_rng(zlib.crc32(name.encode())))


def write_safetensors(path: Path, tensors: Tensors, kind: str = "F32") -> None:
    """Write the format from its definition: a length, a header, the numbers."""
    header, numbers = {}, b""
    for name, array in tensors.items():
        if kind == "BF16":  # the upper half of each float32, rounded to even
            bits = array.astype("<f4").view("<u4")
            raw = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
        else:
            raw = array.astype({"F32": "<f4", "F16": "<f2", "I32": "<i4"}[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [len(numbers), len(numbers) + len(raw)]}
        numbers += raw
    head = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + numbers)


def write_folder(folder: Path, settings: Settings, tensors: Tensors, kind: str = "F32", shards: int = 1) -> Path:
    """Write a folder in Hugging Face's layout."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(settings))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, kind)
    else:
        files = {name: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, name in enumerate(tensors)}
        for file in sorted(set(files.values())):
            write_safetensors(folder / file, {n: t for n, t in tensors.items() if files[n] == file}, kind)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
    write_tokenizer(folder, word_piece() if settings["model_type"] == "bert" else byte_pairs())
    return folder


def byte_pairs() -> tokenizers.Tokenizer:
    ids = {token: i for i, token in enumerate(TOKENS)}
    made = tokenizers.Tokenizer(models.BPE(ids, [tuple(pair.split(" ")) for pair in MERGES]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(SPECIAL)
    return made


def word_piece() -> tokenizers.Tokenizer:
    made = tokenizers.Tokenizer(models.WordPiece({w: i for i, w in enumerate(WORDS)}, unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.add_special_tokens(WORDS[:4])
    made.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return made


def write_tokenizer(folder: Path, made: tokenizers.Tokenizer) -> None:
    made.save(str(folder / "tokenizer.json"))
    config = {"eos_token": "<|im_end|>", "chat_template": CHATML} if made.token_to_id("<|im_end|>") else {}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def write_gguf(path: Path, settings: Settings, tensors: Tensors, kind: str = "F32") -> Path:
    """Write a file like llama.cpp's converter: its names, matrices of GPT-2 for W x, rotary pairs interleaved."""
    gpt = settings["model_type"] == "gpt2"
    H = settings["n_head" if gpt else "num_attention_heads"]
    layers = settings["n_layer" if gpt else "num_hidden_layers"]
    writer = gguf.GGUFWriter(path, settings["model_type"])
    writer.add_embedding_length(settings["n_embd" if gpt else "hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(settings["n_inner" if gpt else "intermediate_size"])
    writer.add_context_length(settings["n_positions" if gpt else "max_position_embeddings"])
    writer.add_head_count(H)
    if gpt:
        writer.add_layer_norm_eps(settings["layer_norm_epsilon"])
    else:
        writer.add_head_count_kv(settings["num_key_value_heads"])
        writer.add_layer_norm_rms_eps(settings["rms_norm_eps"])
        writer.add_rope_freq_base(settings["rope_theta"])
        writer.add_rope_dimension_count(settings["hidden_size"] // H)
    add_tokenizer(writer)
    arch = gguf.MODEL_ARCH.GPT2 if gpt else gguf.MODEL_ARCH.LLAMA
    names = gguf.get_tensor_name_map(arch, layers)
    for name, array in tensors.items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = np.ascontiguousarray(array.T)
        if name.endswith("q_proj.weight"):
            array = interleaved(array, H)
        if name.endswith("k_proj.weight"):
            array = interleaved(array, settings["num_key_value_heads"])
        chosen = gguf.GGMLQuantizationType.F32 if array.ndim == 1 else gguf.GGMLQuantizationType[kind]
        if kind == "Q4_1" and "embed" in name:
            chosen = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(theirs, gguf.quantize(array, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_tokenizer(writer: gguf.GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([gguf.TokenType.CONTROL if t in SPECIAL else gguf.TokenType.NORMAL for t in TOKENS])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(2)
    writer.add_chat_template(CHATML)


def interleaved(w: np.ndarray, num_heads: int) -> np.ndarray:
    """Reorder the rows of each head: rows 2 j and 2 j + 1 of the result are rows j and j + d_k / 2 of w."""
    d_k = len(w) // num_heads
    out = np.empty_like(w)
    for head in range(num_heads):
        for j in range(d_k // 2):
            out[head * d_k + 2 * j] = w[head * d_k + j]
            out[head * d_k + 2 * j + 1] = w[head * d_k + d_k // 2 + j]
    return out


def folder(settings: Settings, **options: Any) -> Callable[[Path, str], Path]:
    return lambda at, name: write_folder(at / name, settings, tensors_of(name, settings), **options)


def file(settings: Settings, **options: Any) -> Callable[[Path, str], Path]:
    return lambda at, name: write_gguf(at / f"{name}.gguf", settings, tensors_of(name, settings), **options)


TIED = LLAMA | {"tie_word_embeddings": True}
QWEN2 = LLAMA | {"model_type": "qwen2", "rms_norm_eps": 1e-6}
CASES: dict[str, Callable[[Path, str], Path]] = {
    "llama": folder(LLAMA), "llama tied": folder(TIED), "llama in float16": folder(LLAMA, kind="F16"),
    "llama in bfloat16": folder(TIED, kind="BF16"), "llama in shards": folder(LLAMA, kind="BF16", shards=3),
    "qwen2": folder(QWEN2), "gpt2": folder(GPT2), "bert": folder(BERT),
    "llama gguf": file(LLAMA), "llama tied gguf": file(TIED),
    "gpt2 gguf": file(GPT2 | {"n_inner": 80, "n_positions": 1024}),  # sizes that the reference assumes
    "llama in Q8_0": file(LLAMA | BLOCKS_OF_32, kind="Q8_0"), "llama in Q4_1": file(TIED | BLOCKS_OF_32, kind="Q4_1"),
    "llama gguf in float16": file(LLAMA, kind="F16"),
}  # fmt: skip


def write(at: Path, name: str) -> Path:
    """Write the checkpoint with this name, and return its path."""
    return CASES[name](at, name)


def write_overflowing(at: Path, settings: Settings) -> Path:
    """A model with these settings whose weights are finite but far too large to compute with."""
    tensors = {name: np.full_like(w, 3e38) for name, w in tensors_of("overflowing", settings).items()}
    return write_folder(at / "overflowing", settings, tensors)
