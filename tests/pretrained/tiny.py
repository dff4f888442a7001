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

SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
MERGES = ["t h", "th e", "Ġ the", "i n", "Ġ a", "s e", "se r", "u ser", "Ġ w", "o r", "Ġw or", "1 2"]
TOKENS = [*SPECIAL, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(pair.replace(" ", "") for pair in MERGES)]
V = len(TOKENS)
SYSTEM = "The other 12 users answer."
CHATML = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    f"{{{{ '<|im_start|>system\n{SYSTEM}<|im_end|>\n' }}}}{{% endif %}}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abdeinorst", *(f"##{c}" for c in "abdeinorst"), "the", "rain", "bread"]

Tensors = dict[str, np.ndarray]
Shapes = dict[str, tuple[int, ...]]
Settings = dict[str, Any]

LLAMA: Settings = {
    "model_type": "llama", "vocab_size": V, "hidden_size": 24, "num_attention_heads": 6, "num_key_value_heads": 2,
    "num_hidden_layers": 2, "intermediate_size": 40, "max_position_embeddings": 37, "rms_norm_eps": 1e-3,
    "rope_theta": 500.0, "hidden_act": "silu", "tie_word_embeddings": False,
}  # fmt: skip
BLOCKS_OF_32 = {"hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 96}  # sizes that can be quantized
TIED = LLAMA | {"tie_word_embeddings": True}
# with heads of 8 and this base, one wavelength is between 8192 / 4 and 8192 tokens, and one is longer
OF_LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LLAMA3 = LLAMA | {"head_dim": 8, "rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", **OF_LLAMA3}}
LINEAR = LLAMA | {"rope_scaling": {"type": "linear", "factor": 2.5}}
DYNAMIC = LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.5}}
QWEN2 = LLAMA | {"model_type": "qwen2", "rms_norm_eps": 1e-6}
QWEN2_WINDOW = QWEN2 | {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
QWEN3 = LLAMA | {"model_type": "qwen3", "head_dim": 8}
YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
QWEN3_YARN = QWEN3 | {
    "tie_word_embeddings": True, "num_hidden_layers": 3, "rope_scaling": YARN, "use_sliding_window": True,
    "sliding_window": 3, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
SMOLLM3 = LLAMA | {  # one layer without positions
    "model_type": "smollm3", "num_hidden_layers": 5, "tie_word_embeddings": True, "no_rope_layer_interval": 4,
    "pad_token_id": None,
}  # fmt: skip
SMOLLM3_LIST = SMOLLM3 | {"num_hidden_layers": 3, "no_rope_layers": [1, 0, 1], "tie_word_embeddings": False}
OLMO2 = LLAMA | {"model_type": "olmo2", "pad_token_id": None}
EXPERTS = {"num_experts_per_tok": 2, "router_aux_loss_coef": 0.03}
MIXTRAL = LLAMA | EXPERTS | {"model_type": "mixtral", "num_local_experts": 5, "intermediate_size": 14}
MIXTRAL_WINDOW = MIXTRAL | {"sliding_window": 3, "tie_word_embeddings": True}
QWEN3_MOE = QWEN3 | EXPERTS | {
    "model_type": "qwen3_moe", "num_experts": 5, "moe_intermediate_size": 14, "norm_topk_prob": True,
}  # fmt: skip
QWEN3_MOE_RAW = {k: v for k, v in QWEN3_MOE.items() if k != "num_experts"} | {  # with the name of transformers 5
    "num_local_experts": 5, "norm_topk_prob": False, "use_sliding_window": True, "sliding_window": 3,
}  # fmt: skip
GEMMA3 = LLAMA | {  # written like the files of 2025: two layers with a window, one without, one with
    "model_type": "gemma3_text", "num_hidden_layers": 4, "head_dim": 8, "query_pre_attn_scalar": 13,
    "sliding_window": 3, "sliding_window_pattern": 3, "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True, "rope_theta": 1000.0, "rope_local_base_freq": 100.0,
    "rope_scaling": {"rope_type": "linear", "factor": 8.0},
}  # fmt: skip
GEMMA3_NESTED = {k: v for k, v in GEMMA3.items() if "rope_" not in k and "pattern" not in k} | {  # like those of 2026
    "layer_types": ["sliding_attention", "full_attention"] * 2, "tie_word_embeddings": False,
    "rope_parameters": {
        "full_attention": {"rope_type": "default", "rope_theta": 1000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
    },
}  # fmt: skip
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


NORM_OF_QK = ("qwen3", "qwen3_moe", "olmo2", "gemma3_text")


def llama(settings: Settings, rng: np.random.Generator) -> Tensors:
    """A llama or one of its descendants."""
    kind, d, ff = settings["model_type"], settings["hidden_size"], settings["intermediate_size"]
    H, H_kv = settings["num_attention_heads"], settings["num_key_value_heads"]
    d_k = settings.get("head_dim", d // H)
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (V, d), "model.norm.weight": (d,)}
    if not settings["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (V, d)
    norms = {
        "olmo2": ["post_attention_layernorm", "post_feedforward_layernorm"],
        "gemma3_text": ["input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm",
                        "post_feedforward_layernorm"],
    }.get(kind, ["input_layernorm", "post_attention_layernorm"])  # fmt: skip
    for i in range(settings["num_hidden_layers"]):
        at = f"model.layers.{i}."
        shapes |= {at + f"{norm}.weight": (d,) for norm in norms}
        for name, width in (("q", H * d_k), ("k", H_kv * d_k), ("v", H_kv * d_k)):
            shapes[at + f"self_attn.{name}_proj.weight"] = (width, d)
            if kind == "qwen2":
                shapes[at + f"self_attn.{name}_proj.bias"] = (width,)
        shapes |= {
            at + "self_attn.o_proj.weight": (d, H * d_k),
            **(experts(at, settings) if "num_experts_per_tok" in settings else feed_forward(at + "mlp.", d, ff)),
        }  # fmt: skip
        for name, heads in {"q": H, "k": H_kv}.items() if kind in NORM_OF_QK else ():
            shapes[at + f"self_attn.{name}_norm.weight"] = (heads * d_k if kind == "olmo2" else d_k,)
    tensors = drawn(shapes, rng)
    return {n: w - 1 if kind == "gemma3_text" and "norm" in n else w for n, w in tensors.items()}


def feed_forward(at: str, d: int, ff: int, names: tuple[str, ...] = ("gate_proj", "up_proj", "down_proj")) -> Shapes:
    return {f"{at}{name}.weight": shape for name, shape in zip(names, ((ff, d), (ff, d), (d, ff)))}


def experts(at: str, settings: Settings) -> Shapes:
    """A router and its experts, with the names on the hub."""
    d, E = settings["hidden_size"], settings.get("num_experts", settings.get("num_local_experts"))
    if settings["model_type"] == "mixtral":
        at, of_one = f"{at}block_sparse_moe.", (d, settings["intermediate_size"], ("w1", "w3", "w2"))
    else:
        at, of_one = f"{at}mlp.", (d, settings["moe_intermediate_size"])
    shapes = {f"{at}gate.weight": (E, d)}
    for e in range(E):
        shapes |= feed_forward(f"{at}experts.{e}.", *of_one)
    return shapes


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


MAKERS = {"gpt2": gpt2, "bert": bert}


def tensors_of(name: str, settings: Settings) -> Tensors:
    """The tensors of a checkpoint; the keys are their names in a folder."""
    return MAKERS.get(settings["model_type"], llama)(settings, np.random.default_rng(zlib.crc32(name.encode())))


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


def write_gguf(
    path: Path, settings: Settings, tensors: Tensors, kind: str = "F32", tokenizer: Settings | None = None
) -> Path:
    """Write a file like llama.cpp's converter: its names, matrices of GPT-2 for W x, rotary pairs interleaved for two
    kinds of models, gammas of Gemma with 1 added, and the frequencies of Llama 3 as a tensor."""
    name = settings["model_type"].removesuffix("_text")
    gpt = name == "gpt2"
    H = settings["n_head" if gpt else "num_attention_heads"]
    layers = settings["n_layer" if gpt else "num_hidden_layers"]
    writer = gguf.GGUFWriter(path, name)
    writer.add_embedding_length(settings["n_embd" if gpt else "hidden_size"])
    writer.add_block_count(layers)
    writer.add_feed_forward_length(settings["n_inner" if gpt else "intermediate_size"])
    writer.add_context_length(settings["n_positions" if gpt else "max_position_embeddings"])
    writer.add_head_count(H)
    if gpt:
        writer.add_layer_norm_eps(settings["layer_norm_epsilon"])
    else:
        add_of_llama(writer, settings)
    add_tokenizer(writer, tokenizer or TOKENIZER)
    arch = next(arch for arch, its_name in gguf.MODEL_ARCH_NAMES.items() if its_name == name)
    names = gguf.get_tensor_name_map(arch, layers)
    for name, array in tensors.items():
        theirs = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert theirs
        if name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight")):
            array = np.ascontiguousarray(array.T)
        if arch in INTERLEAVED and name.endswith("q_proj.weight"):
            array = interleaved(array, H)
        if arch in INTERLEAVED and name.endswith("k_proj.weight"):
            array = interleaved(array, settings["num_key_value_heads"])
        if arch == gguf.MODEL_ARCH.GEMMA3 and name.endswith("norm.weight"):
            array = array + 1
        chosen = gguf.GGMLQuantizationType.F32 if array.ndim == 1 else gguf.GGMLQuantizationType[kind]
        if kind == "Q4_1" and "embed" in name:
            chosen = gguf.GGMLQuantizationType.Q8_0
        writer.add_tensor(theirs, gguf.quantize(array, chosen), raw_dtype=chosen)
    if settings.get("rope_scaling", {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(settings["head_dim"], settings["rope_theta"]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def add_of_llama(writer: gguf.GGUFWriter, settings: Settings) -> None:
    """The settings of a llama and its descendants that GPT-2 does not have."""
    writer.add_head_count_kv(settings["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(settings["rms_norm_eps"])
    writer.add_rope_freq_base(settings["rope_theta"])
    d_k = settings.get("head_dim", settings["hidden_size"] // settings["num_attention_heads"])
    if settings["model_type"] in ("llama", "smollm3"):
        writer.add_rope_dimension_count(d_k)
    if "head_dim" in settings:
        writer.add_key_length(d_k)
        writer.add_value_length(d_k)
    if settings["model_type"] == "gemma3_text":
        writer.add_sliding_window(settings["sliding_window"])
    scaling = settings.get("rope_scaling", {})
    kind = scaling.get("rope_type", scaling.get("type"))
    if kind == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])


def llama3_factors(d_k: int, base: float) -> np.ndarray:
    """What llama.cpp stores for Llama 3: 1 for short wavelengths, 8 for long ones, and numbers between them."""
    wavelengths = 2 * np.pi * base ** (np.arange(0, d_k, 2) / d_k)
    share = (8192 / wavelengths - 1) / (4 - 1)
    middle = 1 / ((1 - share) / 8 + share)
    return np.where(wavelengths < 8192 / 4, 1, np.where(wavelengths > 8192, 8, middle)).astype(np.float32)


TOKENIZER = {
    "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3 if token in SPECIAL else 1 for token in TOKENS],  # 3: a special token
    "tokenizer.ggml.merges": MERGES, "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": CHATML,
}  # fmt: skip


def add_tokenizer(writer: gguf.GGUFWriter, tokenizer: Settings) -> None:
    adds = {str: writer.add_string, int: writer.add_uint32, list: writer.add_array}
    for name, value in tokenizer.items():
        adds[type(value)](name, value)


INTERLEAVED = (gguf.MODEL_ARCH.LLAMA, gguf.MODEL_ARCH.SMOLLM3)


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


# in the file, llama.cpp fixes what Gemma 3 and SmolLM3 say in a folder: a global layer after five others, a local base
# of 10000, the usual scale; a layer without positions after three others
AS_GGUF = {
    "llama 3": LLAMA3, "llama linear": LINEAR, "qwen2": QWEN2, "qwen3": QWEN3,
    "qwen3 tied": QWEN3 | {"tie_word_embeddings": True}, "smollm3": SMOLLM3, "olmo2": OLMO2,
    "gemma3_text": GEMMA3 | {
        "num_hidden_layers": 7, "sliding_window_pattern": 6, "rope_local_base_freq": 1e4, "query_pre_attn_scalar": 8,
    },
}  # fmt: skip
AS_GGUF = {name: settings | {"rms_norm_eps": 2.0**-10} for name, settings in AS_GGUF.items()}  # exact in float32
CASES: dict[str, Callable[[Path, str], Path]] = {
    "llama": folder(LLAMA), "llama tied": folder(TIED), "llama in float16": folder(LLAMA, kind="F16"),
    "llama in bfloat16": folder(TIED, kind="BF16"), "llama in shards": folder(LLAMA, kind="BF16", shards=3),
    "qwen2": folder(QWEN2), "qwen2 with a window": folder(QWEN2_WINDOW), "qwen3": folder(QWEN3),
    "qwen3 with yarn": folder(QWEN3_YARN), "llama 3": folder(LLAMA3), "llama linear": folder(LINEAR),
    "llama dynamic": folder(DYNAMIC), "smollm3": folder(SMOLLM3), "smollm3 with a list": folder(SMOLLM3_LIST),
    "olmo2": folder(OLMO2), "mixtral": folder(MIXTRAL), "mixtral with a window": folder(MIXTRAL_WINDOW),
    "qwen3_moe": folder(QWEN3_MOE), "qwen3_moe with raw weights": folder(QWEN3_MOE_RAW),
    "gemma3_text": folder(GEMMA3), "gemma3_text nested": folder(GEMMA3_NESTED),
    "gpt2": folder(GPT2), "bert": folder(BERT),
    "llama gguf": file(LLAMA), "llama tied gguf": file(TIED),
    "gpt2 gguf": file(GPT2 | {"n_inner": 80, "n_positions": 1024}),  # sizes that the reference assumes
    "llama in Q8_0": file(LLAMA | BLOCKS_OF_32, kind="Q8_0"), "llama in Q4_1": file(TIED | BLOCKS_OF_32, kind="Q4_1"),
    "llama gguf in float16": file(LLAMA, kind="F16"),
}  # fmt: skip


FILES = {f"{name} as gguf": file(settings) for name, settings in AS_GGUF.items()}  # no results are stored for these


def write(at: Path, name: str) -> Path:
    """Write the checkpoint with this name, and return its path."""
    return {**CASES, **FILES}[name](at, name)


def write_overflowing(at: Path, settings: Settings) -> Path:
    """A model with these settings whose weights are finite but far too large to compute with."""
    tensors = {name: np.full_like(w, 3e38) for name, w in tensors_of("overflowing", settings).items()}
    return write_folder(at / "overflowing", settings, tensors)
