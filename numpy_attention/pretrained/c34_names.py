"""Chapter 34. Names: the parameters of this book and their names in other programs

Every transformer has the same parts, but every program uses its own names for them. A table translates the names:

    ours                          GGUF                       Hugging Face
    blocks.0.attention.w_q        blk.0.attn_q.weight        model.layers.0.self_attn.q_proj.weight
    blocks.0.attention.b_q        blk.0.attn_q.bias          model.layers.0.self_attn.q_proj.bias

The names are not the only difference; there are four more. Most programs write a linear map as W x, but this book
writes x w (Chapter 1), so this chapter transposes their matrices. GPT-2 keeps query, key and value in one matrix; it is
split into three. A folder of Gemma 3 stores gamma - 1 for each norm. And a GGUF file of a llama or a SmolLM3 stores the
rows of w_q and w_k for interleaved rotary pairs, but this book pairs the two halves (Chapter 8). So the rows of each
head are reordered: the first coordinates of all pairs, then the second coordinates.

    interleaved   0  1  2  3  4  5        pairs at positions (0, 1) (2, 3) (4, 5)
    half          0  2  4  1  3  5        pairs at positions (0, 3) (1, 4) (2, 5)

q k^T is a sum over coordinates. So any order of the coordinates is allowed if queries and keys use the same order.
"""

import re
from collections.abc import Mapping

import numpy as np

from numpy_attention.errors import InputError, several
from numpy_attention.models.c21c_model import Model
from numpy_attention.models.c22a_text_encoder import TextEncoder
from numpy_attention.pieces import non_finite
from numpy_attention.pretrained.c33_gguf_files import Arrays

# tensors that this book computes instead (masks and positions), and the pooler of a BERT, which it does not need
NOT_WANTED = re.compile(
    r"(.*\.)?(attn\.(masked_)?bias|position_ids|rotary_emb\.inv_freq|rope_freqs\.weight|pooler\.dense\.\w+)"
)
HEADS = re.compile(r"(cls|classifier|qa_outputs)\..*")  # of a BERT, for other tasks than text vectors
BEFORE_2019 = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}  # BERT's original names
REASONS = {  # why a tensor is unknown
    r"\.lora_": "it holds low-rank changes of another program; merge them into their model first",
    r"qweight|qzeros|\.scales$|weight_scale|absmax|SCB": "its numbers are quantized; take the original, or a GGUF file",
    r"vision|image|multi_modal": "it also reads images; this book loads only models of text",
    r"expert|router|_exps\.": "experts are loaded only for mixtral and qwen3_moe, as many as their settings say",
    r"^(_orig_mod|module)\.": "it was saved from inside a wrapper of PyTorch; save the model itself",
    r"\.bias$": "models of this kind with such biases (attention_bias or mlp_bias) are not loaded here",
}
MAYBE = "do the settings belong to these tensors?"
FIRST = ("", "transformer.", "bert.")  # prefixes that some programs put before every name
X_W = re.compile(r"(^|\.)h\.\d+\.")  # GPT-2's original program writes x w, like this book
JOINED = re.compile(r"\.(attn_qkv|c_attn)\.")  # query, key and value in one matrix

Table = Mapping[str, tuple[str, str]]
_BLOCK, _LAYER, _ATTENTION = "blk.{}.", "model.layers.{}.", "model.layers.{}.self_attn."

# our name: (GGUF, Hugging Face); the suffix is .bias for a bias, .weight for all others
LLAMA = {
    "token_embedding.table": ("token_embd", "model.embed_tokens"),
    "blocks.{}.norm_1.gamma": (_BLOCK + "attn_norm", _LAYER + "input_layernorm"),
    **{f"blocks.{{}}.attention.{w}_{s}": (f"{_BLOCK}attn_{s}", f"{_ATTENTION}{s}_proj") for s in "qkv" for w in "wb"},
    **{f"blocks.{{}}.attention.norm_{s}.gamma": (f"{_BLOCK}attn_{s}_norm", f"{_ATTENTION}{s}_norm") for s in "qk"},
    "blocks.{}.attention.w_o": (_BLOCK + "attn_output", _ATTENTION + "o_proj"),
    "blocks.{}.branch_norm_1.gamma": (_BLOCK + "post_attention_norm", _LAYER + "post_attention_layernorm"),
    "blocks.{}.norm_2.gamma": (_BLOCK + "ffn_norm", _LAYER + "post_attention_layernorm"),
    "blocks.{}.branch_norm_2.gamma": (_BLOCK + "post_ffw_norm", _LAYER + "post_feedforward_layernorm"),
    "blocks.{}.feed_forward.w_gate": (_BLOCK + "ffn_gate", _LAYER + "mlp.gate_proj"),
    "blocks.{}.feed_forward.w_1": (_BLOCK + "ffn_up", _LAYER + "mlp.up_proj"),
    "blocks.{}.feed_forward.w_2": (_BLOCK + "ffn_down", _LAYER + "mlp.down_proj"),
    "norm.gamma": ("output_norm", "model.norm"),
    "head.w": ("output", "lm_head"),
}
GEMMA = LLAMA | {"blocks.{}.norm_2.gamma": (_BLOCK + "ffn_norm", _LAYER + "pre_feedforward_layernorm")}
_EXPERT = "blocks.{}.feed_forward.experts.{}."
MIXTRAL = LLAMA | {
    "blocks.{}.feed_forward.w_router": ("", _LAYER + "block_sparse_moe.gate"),
    _EXPERT + "w_gate": ("", _LAYER + "block_sparse_moe.experts.{}.w1"),
    _EXPERT + "w_1": ("", _LAYER + "block_sparse_moe.experts.{}.w3"),
    _EXPERT + "w_2": ("", _LAYER + "block_sparse_moe.experts.{}.w2"),
}
QWEN3_MOE = LLAMA | {
    "blocks.{}.feed_forward.w_router": ("", _LAYER + "mlp.gate"),
    _EXPERT + "w_gate": ("", _LAYER + "mlp.experts.{}.gate_proj"),
    _EXPERT + "w_1": ("", _LAYER + "mlp.experts.{}.up_proj"),
    _EXPERT + "w_2": ("", _LAYER + "mlp.experts.{}.down_proj"),
}
_GPT2 = "h.{}."
GPT2 = {
    "token_embedding.table": ("token_embd", "wte"),
    "position_embedding.table": ("position_embd", "wpe"),
    **{f"blocks.{{}}.norm_1.{g}": (_BLOCK + "attn_norm", _GPT2 + "ln_1") for g in ("gamma", "beta")},
    **{f"blocks.{{}}.attention.{w}_{s}": (_BLOCK + "attn_qkv", _GPT2 + "attn.c_attn") for s in "qkv" for w in "wb"},
    **{f"blocks.{{}}.attention.{w}_o": (_BLOCK + "attn_output", _GPT2 + "attn.c_proj") for w in "wb"},
    **{f"blocks.{{}}.norm_2.{g}": (_BLOCK + "ffn_norm", _GPT2 + "ln_2") for g in ("gamma", "beta")},
    **{f"blocks.{{}}.feed_forward.{w}_1": (_BLOCK + "ffn_up", _GPT2 + "mlp.c_fc") for w in "wb"},
    **{f"blocks.{{}}.feed_forward.{w}_2": (_BLOCK + "ffn_down", _GPT2 + "mlp.c_proj") for w in "wb"},
    **{f"norm.{g}": ("output_norm", "ln_f") for g in ("gamma", "beta")},
    "head.w": ("output", "lm_head"),
}
_BERT, _SELF = "encoder.layer.{}.", "encoder.layer.{}.attention.self."
BERT = {
    "token_embedding.table": ("", "embeddings.word_embeddings"),
    "position_embedding.table": ("", "embeddings.position_embeddings"),
    "type_embedding.table": ("", "embeddings.token_type_embeddings"),
    **{f"embedding_norm.{g}": ("", "embeddings.LayerNorm") for g in ("gamma", "beta")},
    **{f"blocks.{{}}.attention.{w}_{s[0]}": ("", _SELF + s) for s in ("query", "key", "value") for w in "wb"},
    **{f"blocks.{{}}.attention.{w}_o": ("", _BERT + "attention.output.dense") for w in "wb"},
    **{f"blocks.{{}}.norm_1.{g}": ("", _BERT + "attention.output.LayerNorm") for g in ("gamma", "beta")},
    **{f"blocks.{{}}.feed_forward.{w}_1": ("", _BERT + "intermediate.dense") for w in "wb"},
    **{f"blocks.{{}}.feed_forward.{w}_2": ("", _BERT + "output.dense") for w in "wb"},
    **{f"blocks.{{}}.norm_2.{g}": ("", _BERT + "output.LayerNorm") for g in ("gamma", "beta")},
}


def fill(
    model: Model, arrays: Arrays, table: Table, gguf: bool = False, interleaved: bool = False, less_one: bool = False
) -> list[str]:
    """Write the tensors of a file into the parameters of a model; return the names of heads that are left out.

    With `interleaved`, the rows of w_q and w_k are in the order for interleaved rotary pairs; with `less_one`, each
    gamma is stored as gamma - 1.

    Raises: InputError if names or shapes do not fit (before anything is read), and for a tensor that cannot be read.
    """
    found, left_out = _matched(model, arrays, table, gguf, interleaved)
    for name, p in model.parameters().items():
        theirs = found[name]
        with np.errstate(invalid="ignore", over="ignore"):  # the check below reports numbers that are not finite
            p[...] = as_ours(arrays[theirs].read(), name, theirs, model, interleaved)
            if less_one and name.endswith("gamma"):
                p += 1
        if non_finite(p):
            raise InputError(f"{theirs} holds numbers that are not finite in {p.dtype}")
    return left_out


def _matched(
    model: Model, arrays: Arrays, table: Table, gguf: bool, interleaved: bool
) -> tuple[dict[str, str], list[str]]:
    """The name of each parameter's tensor, and the names of the heads that this model does not have."""
    found: dict[str, str] = {}
    wrong = []
    for name, p in model.parameters().items():
        names = _possible(their_name(name, table, gguf))
        theirs = next((one for one in names if one in arrays), names[0])
        if theirs not in arrays:
            wrong.append(f"{theirs} is missing")
            continue
        shape = arrays[theirs].shape
        empty = np.broadcast_to(p.dtype.type(0), shape)  # has the tensor's shape, but only one number in memory
        if (ours := as_ours(empty, name, theirs, model, interleaved).shape) != p.shape:
            wrong.append(f"{theirs} is {shape}, which gives {ours} for {name}, expected {p.shape}")
        found[name] = theirs
    unknown = sorted(name for name in arrays.keys() - found.values() if not NOT_WANTED.fullmatch(name))
    left_out = [name for name in unknown if isinstance(model, TextEncoder) and HEADS.fullmatch(name)]
    unknown = [name for name in unknown if name not in left_out]
    if not wrong and "head.w" in table and (head := their_name("head.w", table, gguf)) in unknown:
        unknown.remove(head)
        wrong += _differ(arrays, found["token_embedding.table"], head)
    wrong += [f"{name!r} is unknown here" for name in unknown]
    if wrong:
        reasons = (reason for pattern, reason in REASONS.items() if any(re.search(pattern, name) for name in unknown))
        raise InputError(f"{several(wrong)}; {next(reasons, MAYBE)}")
    return found, left_out


def _possible(theirs: str) -> list[str]:
    """The names that programs give to one tensor."""
    names = [first + theirs for first in FIRST]
    names += [name.replace(new, old) for name in names for new, old in BEFORE_2019.items() if name.endswith(new)]
    return [*names, theirs.removeprefix("model.")]  # the last one: without a head, a folder has no such prefix


def _differ(arrays: Arrays, table: str, head: str) -> list[str]:
    """Tied weights may be stored twice, as the table and as the head: what is wrong if the copies differ."""
    if arrays[head].shape == arrays[table].shape and np.array_equal(arrays[head].read(), arrays[table].read()):
        return []
    return [f"{head} is not equal to {table}, but config.json says that they are tied (tie_word_embeddings)"]


def their_name(name: str, table: Table, gguf: bool) -> str:
    """The name of one of our parameters in the file."""
    number = r"(?<=\.)\d+(?=\.)"  # of a block, or of an expert
    theirs = table[re.sub(number, "{}", name)][0 if gguf else 1]
    ending = ".bias" if name.rsplit(".", 1)[-1].startswith("b") else ".weight"
    return theirs.format(*re.findall(number, name)) + ending


def as_ours(array: np.ndarray, name: str, theirs: str, model: Model, interleaved: bool) -> np.ndarray:
    """A tensor of a file, transposed, split and reordered as in this book."""
    last = name.rsplit(".", 1)[-1]
    if last.startswith("w") and array.ndim == 2 and not X_W.search(theirs):
        array = array.T  # (d_in, d_out)
    if JOINED.search(theirs) and array.ndim and array.shape[-1] % 3 == 0:
        return np.split(array, 3, axis=-1)["qkv".index(last[-1])]
    if interleaved and last in ("w_q", "w_k"):
        d_k = model.config.head_width()
        if array.ndim == 2 and array.shape[1] % d_k == 0:
            pairs = array.reshape(len(array), -1, d_k // 2, 2)  # (d_in, H, d_k / 2, 2)
            array = pairs.swapaxes(-1, -2).reshape(array.shape)  # (d_in, H 2 d_k / 2)
    return array
