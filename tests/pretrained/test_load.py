"""Chapter 36: the layers of this book compute the same from a checkpoint as other programs."""

import json

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from tests.pretrained import tiny
from tests.pretrained.absent import without
from tests.pretrained.agreement import gradient_errors, stored
from tests.reference.pretrained_cases import batch, direction

GPTS = [name for name in tiny.CASES if name != "bert"]
# float32 rounds at 6e-8, float64 at 1e-16: some tens of times from ids to logits, and twice as often in the backward
TOLERANCES = {np.float64: 1e-13, np.float32: 1e-5}


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", GPTS)
def test_logits_and_gradients_equal_those_of_pytorch(name, dtype, tmp_path):
    model, tokenizer = na.load_pretrained(tiny.write(tmp_path, name), dtype)
    reference, tolerance = stored("pretrained.npz", name), TOLERANCES[dtype]
    ids, targets, _ = batch(name, len(tokenizer))
    logits, _ = model.forward(ids)
    assert logits.dtype == dtype
    sums = logits @ direction(name, 0, (logits.shape[-1], 5))
    np.testing.assert_allclose(sums, reference["logits"], rtol=0, atol=tolerance * np.abs(reference["logits"]).max())
    loss, cache = model.loss(ids, targets)
    assert float(loss) == pytest.approx(float(reference["loss"]), rel=tolerance)
    assert max(gradient_errors(model, name.split()[0], model.backward(cache), reference)) < 3 * tolerance


@pytest.mark.parametrize("dtype", TOLERANCES)
def test_text_vectors_and_gradients_equal_those_of_pytorch(dtype, tmp_path):
    model, _ = na.load_pretrained(tiny.write(tmp_path, "bert"), dtype)
    reference, tolerance = stored("pretrained.npz", "bert"), TOLERANCES[dtype]
    ids, _, lengths = batch("bert", len(tiny.WORDS))
    y, cache = model.forward(ids, lengths)
    np.testing.assert_allclose(y, reference["y"], rtol=0, atol=tolerance)
    grads = dict(model.gradients_from_logits(cache, direction("bert", 0, y.shape).astype(dtype)))
    assert max(gradient_errors(model, "bert", grads, reference)) < 3 * tolerance


@pytest.mark.parametrize("name", tiny.AS_GGUF)
def test_a_gguf_file_gives_the_same_model_as_a_folder(name, tmp_path):
    """The stored results belong to folders: `transformers` does not read some of these GGUF files."""
    settings, tensors = tiny.AS_GGUF[name], tiny.tensors_of(name, tiny.AS_GGUF[name])
    expected, _ = na.load_pretrained(tiny.write_folder(tmp_path / "folder", settings, tensors))
    same(na.load_pretrained(tiny.write_gguf(tmp_path / "file.gguf", settings, tensors)).model, expected)


def answer(path):
    with pytest.raises(InputError) as caught:
        na.load_pretrained(path)
    text = str(caught.value)
    assert "\n" not in text
    assert str(path) in text
    return text


def test_one_error_lists_all_tensors_that_do_not_fit(tmp_path):
    tensors = tiny.tensors_of("wrong", tiny.LLAMA)
    del tensors["model.layers.1.mlp.up_proj.weight"]
    tensors["model.layers.0.self_attn.q_proj.weight"] = tensors["model.layers.0.self_attn.q_proj.weight"][:-1]
    tensors["model.layers.0.self_attn.q_norm.weight"] = np.ones(4, np.float32)
    text = answer(tiny.write_folder(tmp_path / "wrong", tiny.LLAMA, tensors))
    for part in (
        "model.layers.1.mlp.up_proj.weight is missing", "'model.layers.0.self_attn.q_norm.weight' is unknown here",
        "model.layers.0.self_attn.q_proj.weight is (23, 24), which gives (24, 23)", "w_q, expected (24, 24)",
    ):  # fmt: skip
        assert part in text


@pytest.mark.parametrize(("experts", "expected"), [
    (4, "model.layers.0.block_sparse_moe.gate.weight is (5, 24), which gives (24, 5) for "),
    (6, "model.layers.0.block_sparse_moe.experts.5.w1.weight is missing"),
    (2**24, "its settings describe 2 layers, 33,554,432 feed-forward networks, and a table"),
])  # fmt: skip
def test_a_wrong_number_of_experts_is_refused(experts, expected, tmp_path):
    settings, tensors = tiny.MIXTRAL | {"num_local_experts": experts}, tiny.tensors_of("wrong", tiny.MIXTRAL)
    assert expected in answer(tiny.write_folder(tmp_path / "wrong", settings, tensors))


def test_error_names_tensors_with_an_unknown_number_format(tmp_path):
    path = tiny.write_folder(tmp_path / "ints", tiny.LLAMA, tiny.tensors_of("ints", tiny.LLAMA), kind="I32")
    assert "holds numbers of the kind I32, which cannot be read here" in answer(path)
    path = tiny.write(tmp_path, "llama gguf")
    raw = path.read_bytes()
    at = raw.index(b"blk.1.ffn_up.weight") + len(b"blk.1.ffn_up.weight") + 4 + 16
    assert raw[at : at + 4] == bytes(4)  # F32
    path.write_bytes(raw[:at] + (24).to_bytes(4, "little") + raw[at + 4 :])  # I8
    assert "blk.1.ffn_up.weight holds numbers of the kind I8, which cannot be read here" in answer(path)


def same(found, expected):
    assert found.config == expected.config
    for name, p in expected.parameters().items():
        np.testing.assert_array_equal(found.parameters()[name], p, err_msg=name)


@pytest.mark.parametrize(("settings", "table"), [(tiny.TIED, "model.embed_tokens"), (tiny.GPT2, "transformer.wte")])
def test_tied_weights_may_be_stored_twice_if_the_copies_are_equal(settings, table, tmp_path):
    """`transformers` ignores the second copy; if it differs, one of the file and its settings is wrong."""
    tensors = tiny.tensors_of("twice", settings)
    expected, _ = na.load_pretrained(tiny.write_folder(tmp_path / "once", settings, tensors))
    tensors["lm_head.weight"] = tensors[f"{table}.weight"].copy()
    for kind in ("F32", "F16"):
        found, _ = na.load_pretrained(tiny.write_folder(tmp_path / kind, settings, tensors, kind))
        if kind == "F32":
            same(found, expected)
    for wrong in (tensors["lm_head.weight"] + np.eye(1, dtype=np.float32)[0], tensors["lm_head.weight"][:-1]):
        tensors["lm_head.weight"] = wrong
        text = answer(tiny.write_folder(tmp_path / f"{len(wrong)}", settings, tensors))
        assert f"lm_head.weight is not equal to {table}.weight, but config.json says that they are tied" in text


def of_2018(tensors):
    """The names of bert-base-uncased: gamma and beta, a prefix, and heads for other tasks."""
    names = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    found = {}
    for name, array in tensors.items():
        end = next((end for end in names if name.endswith(end)), "")
        found["bert." + name.removesuffix(end) + names.get(end, "")] = array
    return found


HEADS = ["cls.predictions.bias", "cls.predictions.transform.LayerNorm.gamma", "cls.seq_relationship.weight",
         "classifier.weight", "qa_outputs.bias"]  # fmt: skip


@pytest.mark.parametrize("masked", [False, True], ids=["all heads", "a masked language model"])
def test_a_bert_with_the_names_of_2018_loads_and_a_warning_names_the_heads_left_out(masked, tmp_path):
    expected, _ = na.load_pretrained(tiny.write(tmp_path, "bert"))
    tensors = of_2018(tiny.tensors_of("bert", tiny.BERT))
    if masked:  # it has no pooler
        tensors = {name: w for name, w in tensors.items() if "pooler" not in name}
    heads = HEADS[:2] if masked else HEADS
    tensors |= {name: np.ones(3, np.float32) for name in heads}
    path = tiny.write_folder(tmp_path / "old", tiny.BERT, tensors)
    with pytest.warns(UserWarning, match="left out") as caught:
        found, _ = na.load_pretrained(path)
    [message] = [str(one.message) for one in caught]
    assert message == f"{path}: left out, because a TextEncoder has no such head: {'; '.join(sorted(heads))}"
    assert caught[0].filename == __file__
    same(found, expected)


def test_the_body_of_a_model_without_its_head_has_no_prefix(tmp_path):
    """As `transformers` saves the text part of a Gemma 3 with images."""
    tensors = tiny.tensors_of("body", tiny.TIED)
    expected, _ = na.load_pretrained(tiny.write_folder(tmp_path / "whole", tiny.TIED, tensors))
    bare = {name.removeprefix("model."): w for name, w in tensors.items()}
    same(na.load_pretrained(tiny.write_folder(tmp_path / "body", tiny.TIED, bare)).model, expected)


@pytest.mark.parametrize(("name", "reason"), [
    ("model.layers.{}.mlp.up_proj.qweight", "its numbers are quantized; take the original, or a GGUF file"),
    ("model.layers.{}.mlp.experts.0.up_proj.weight",
     "experts are loaded only for mixtral and qwen3_moe, as many as their settings say"),
    ("other.{}", "do the settings belong to these tensors?"),
])  # fmt: skip
def test_error_for_many_unknown_tensors_names_five_and_the_likeliest_reason(name, reason, tmp_path):
    names = [name.format(i) for i in range(9)]
    tensors = tiny.tensors_of("llama", tiny.LLAMA) | {one: np.ones(2, np.float32) for one in names}
    text = answer(tiny.write_folder(tmp_path / "other", tiny.LLAMA, tensors))
    listed = "; ".join(f"{one!r} is unknown here" for one in names[:5])
    assert f"{listed}; ... and 4 more; {reason}" in text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_error_names_a_tensor_that_holds_nan_or_infinity(value, tmp_path):
    tensors = tiny.tensors_of("llama", tiny.LLAMA)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 2] = value
    text = answer(tiny.write_folder(tmp_path / "wrong", tiny.LLAMA, tensors, kind="BF16"))
    assert "model.layers.1.mlp.up_proj.weight holds numbers that are not finite" in text


@pytest.mark.parametrize("kind", ["mamba", None, []])
def test_error_for_an_unknown_architecture_lists_the_known_ones(kind, tmp_path):
    path = tiny.write_folder(tmp_path / "other", tiny.LLAMA, tiny.tensors_of("other", tiny.LLAMA))
    (path / "config.json").write_text(json.dumps(tiny.LLAMA | {"model_type": kind}))
    text = answer(path)
    known = "llama, qwen2, qwen3, smollm3, olmo2, gemma3_text, mixtral, qwen3_moe, gpt2, bert"
    assert text.endswith(f"known kinds are {known}")
    assert "'mamba'" in text or kind != "mamba"


def test_refuses_a_tokenizer_with_more_ids_than_the_model(tmp_path):
    settings = tiny.LLAMA | {"vocab_size": tiny.V - 1}
    tensors = tiny.tensors_of("short", tiny.LLAMA)
    short = {name: t[:-1] if len(t) == tiny.V else t for name, t in tensors.items()}
    path = tiny.write_folder(tmp_path / "short", settings, short)
    assert f"its tokenizer has ids up to {tiny.V - 1}, but its settings allow {tiny.V - 1} tokens" in answer(path)


@pytest.mark.parametrize(
    ("name", "package"), [("llama gguf", "gguf"), ("llama", "safetensors"), ("gpt2", "tokenizers")]
)
def test_error_without_a_package_says_what_to_install(name, package, tmp_path, monkeypatch):
    path = tiny.write(tmp_path, name)
    without(monkeypatch, package)
    with pytest.raises(InputError, match=f"need the package {package}: .*pip install {package}$"):
        na.load_pretrained(path)
