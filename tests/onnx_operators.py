"""The operators of the ONNX standard as calls of our public functions: one adapter for each operator.

The standard stores packed heads as (B, T, H d), our functions take (B, H, T, d). It puts the classes on axis 1, our
losses on the last axis. An adapter changes the layout, calls one op, and changes the layout of the results back.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

import numpy_attention as na

onnx = pytest.importorskip("onnx", reason="needs onnx: pip install -e '.[test]'")
node_cases = pytest.importorskip("onnx.backend.test.case.node")

Inputs = dict[str, np.ndarray]  # by the names in the case
Attributes = dict[str, Any]


@dataclass(frozen=True)
class Call:
    """One call of an op, and its results by the names in the case."""

    op: Callable[..., Any]
    op_backward: Callable[..., Any]
    arguments: dict[str, Any]  # arrays; the arrays of floats have a gradient
    options: dict[str, Any]
    results: Callable[[Any, Any], dict[str, Any]]  # from y and the cache; None where tiles have no result


@cache
def cases_of(operator: str) -> list[Any]:
    """The cases of an operator, with the same random numbers in every run.

    `collect_testcases` would compute the cases of all operators, which takes ten seconds. So only one module is
    imported. Cases with "expanded" in their names hold the same numbers and a graph of smaller operators.
    """
    state = np.random.get_state()
    np.random.seed(0)
    importlib.import_module(f"{node_cases.__name__}.{OPERATORS[operator].module}")
    np.random.set_state(state)
    found = [case for case in node_cases._NodeTestCases if "expanded" not in case.name]
    return [case for case in found if case.model.graph.node[0].op_type == operator]


SHORT = ("bfloat16", "float16")  # our functions compute with float32 in their place


def inputs_and_attributes(case: Any) -> tuple[Inputs, Attributes]:
    """The inputs of a case by name, bfloat16 and float16 as float32, and the attributes of its node."""
    (node,), (arrays, _) = case.model.graph.node, case.data_sets[0]
    names = [name for name in node.input if name]
    inputs = {name: x.astype(np.float32) if x.dtype.name in SHORT else x for name, x in zip(names, arrays)}
    attributes = {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}
    return inputs, {name: value.decode() if isinstance(value, bytes) else value for name, value in attributes.items()}


def expected_results(case: Any) -> dict[str, np.ndarray]:
    """All stored outputs of a case, by name."""
    return dict(zip([name for name in case.model.graph.node[0].output if name], case.data_sets[0][1], strict=True))


def split(x: np.ndarray, num_heads: int) -> np.ndarray:
    """(B, T, H d) -> (B, H, T, d)."""
    return na.split_heads(x, num_heads)[0]


def as_packed(y: np.ndarray, packed: bool) -> np.ndarray:
    """(B, H, T, d) -> (B, T, H d), if the inputs were packed too."""
    return na.concat_heads(y)[0] if packed else y


def attention(x: Inputs, a: Attributes) -> Call:
    q, k, v = x["Q"], x["K"], x["V"]
    packed = q.ndim == 3
    if packed:
        q, k, v = split(q, a["q_num_heads"]), split(k, a["kv_num_heads"]), split(v, a["kv_num_heads"])
    if "past_key" in x:
        k, v = np.concatenate([x["past_key"], k], axis=2), np.concatenate([x["past_value"], v], axis=2)
    mask, bias = visible(x, a, q.shape[2], k.shape[2])
    cap = a.get("softcap") or None
    options = {"scale": a.get("scale"), **({} if cap is None else {"softcap": cap})}

    def results(y: np.ndarray, cache: Any) -> dict[str, np.ndarray]:
        stages = [cache.scale * q @ k.repeat(q.shape[1] // k.shape[1], axis=1).swapaxes(-1, -2)]
        stages.append(na.softcap(stages[0], cap)[0] if cap else stages[0])
        stages.append(np.where(mask, stages[1] + (0 if bias is None else bias), -np.inf))
        np.testing.assert_allclose(na.softmax(stages[2])[0], cache.weights, rtol=1e-4)
        stage = [*stages, cache.weights][a.get("qk_matmul_output_mode", 0)].astype(q.dtype)
        return {"Y": as_packed(y, packed), "present_key": k, "present_value": v, "qk_matmul_output": stage}

    arguments = {"q": q, "k": k, "v": v, "mask": mask, **({} if bias is None else {"bias": bias})}
    op, backward = na.scaled_dot_product_attention, na.scaled_dot_product_attention_backward
    if cap is not None:
        op, backward = na.tamed_attention, na.tamed_attention_backward
    return Call(op, backward, arguments, options, results)


def tiled_attention(x: Inputs, a: Attributes) -> Call | None:
    """The same call in tiles, which have no bias and do not give the scores."""
    dense = attention(x, a)
    if "bias" in dense.arguments:
        return None
    options = {**dense.options, "block_size": 4}
    packed = x["Q"].ndim == 3

    def results(y: np.ndarray, cache: Any) -> dict[str, np.ndarray]:
        present = {"present_key": dense.arguments["k"], "present_value": dense.arguments["v"]}
        return {"Y": as_packed(y, packed), **present, "qk_matmul_output": None}

    op, backward = na.tiled_attention, na.tiled_attention_backward
    if "softcap" in options:
        op, backward = na.tamed_tiled_attention, na.tamed_tiled_attention_backward
    return Call(op, backward, dense.arguments, options, results)


def visible(x: Inputs, a: Attributes, T_q: int, T_k: int) -> tuple[np.ndarray, np.ndarray | None]:
    """Which query may look at which key, as our mask; and the finite part of a mask of floats, as our bias.

    The first query has the position `before`, the number of keys before it. If each text of a batch has its own number
    of keys, each text has its own mask.
    """
    causal, left, right = a.get("is_causal", 0), a.get("left_window_size", -1), a.get("right_window_size", -1)
    lengths = x.get("nonpad_kv_seqlen")
    before = [x["past_key"].shape[2] if "past_key" in x else 0] if lengths is None else (lengths - T_q).tolist()
    ahead = 0 if causal else right if right >= 0 else T_q + T_k
    T = 2 * T_q + T_k
    band = na.sliding_window_mask(T, left + 1 if left >= 0 else T, ahead=ahead)
    mask = np.stack([band[None, T_q + n : 2 * T_q + n, T_q : T_q + T_k] for n in before])  # (B or 1, 1, T_q, T_k)
    if lengths is not None:
        mask = mask & na.padding_mask(lengths, T_k)
    if "attn_mask" not in x:
        return mask, None
    given = x["attn_mask"]
    missing = [(0, 0)] * (given.ndim - 1) + [(0, T_k - given.shape[-1])]
    if given.dtype == np.bool_:
        return mask & np.pad(given, missing), None
    given = np.pad(given, missing, constant_values=-np.inf)
    return mask & ~np.isneginf(given), np.where(np.isneginf(given), 0, given)


def flex_attention(x: Inputs, a: Attributes) -> Call:
    arguments = {"q": x["Q"], "k": x["K"], "v": x["V"]}
    options = {name: modifier(a[name]) for name in ("score_mod", "prob_mod") if name in a}
    if "scale" in a:
        options["scale"] = a["scale"]
    return Call(na.flex_attention, na.flex_attention_backward, arguments, options, lambda y, cache: {"Y": y})


def modifier(graph: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The graph of a modifier as a forward and a backward; a graph that is not listed here is an error."""
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}

    def positions(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])

    def causal(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        i, j = positions(x)
        return np.where(i >= j, x, -np.inf).astype(x.dtype), i >= j

    def relative(x: np.ndarray) -> tuple[np.ndarray, None]:
        i, j = positions(x)
        return x + (i - j).astype(x.dtype), None

    match [node.op_type for node in graph.node]:
        case ["Add"]:
            return lambda x: (x + constants["bias"].astype(x.dtype), None), lambda dy, cache: dy
        case ["Mul"]:
            scale = float(constants["scale"])
            return lambda x: (scale * x, None), lambda dy, cache: scale * dy
        case ["Div", "Tanh", "Mul"]:
            return lambda x: na.softcap(x, float(constants["cap"])), na.softcap_backward
        case [*_, "GreaterOrEqual", "Where"]:
            return causal, lambda dy, mask: dy * mask
        case [*_, "Sub", "Cast", "Add"]:
            return relative, lambda dy, cache: dy
        case unknown:
            raise NotImplementedError(f"a modifier of {unknown}")


def linear_attention(x: Inputs, a: Attributes) -> Call:
    return recurrence(x, a, na.linear_attention, na.linear_attention_backward)


def chunked_linear_attention(x: Inputs, a: Attributes) -> Call:
    return recurrence(x, {**a, "chunk_size": 3}, na.chunked_linear_attention, na.chunked_linear_attention_backward)


def recurrence(x: Inputs, a: Attributes, op: Callable[..., Any], op_backward: Callable[..., Any]) -> Call:
    """The last state is the second output, so the check of the gradients includes `dstate_end`."""
    H = a["kv_num_heads"]
    arguments = {"q": split(x["query"], a["q_num_heads"]), "k": split(x["key"], H), "v": split(x["value"], H)}
    rule = a.get("update_rule", "gated_delta")
    assert ("decay" in x, "beta" in x) == ("gated" in rule, "delta" in rule)
    if "decay" in x:
        arguments["decay"] = split(x["decay"], H)
    if "beta" in x:
        arguments["beta"] = split(x["beta"], x["beta"].shape[-1])  # one number for each head, or for all heads
    if "past_state" in x:
        arguments["state"] = x["past_state"]
    options = {name: a[name] for name in ("scale", "chunk_size") if name in a}

    def with_state(
        q: Any, k: Any, v: Any, decay: Any = None, beta: Any = None, state: Any = None, **options: Any
    ) -> tuple[tuple[np.ndarray, np.ndarray], Any]:
        y, cache = op(q, k, v, decay, beta, state, **options)
        return (y, cache.state), cache

    def backward(dy: Any, cache: Any) -> Any:
        return op_backward(dy[0], cache, dy[1])

    def results(y: Any, cache: Any) -> dict[str, np.ndarray]:
        return {"output": as_packed(y[0], True), "present_state": y[1].astype(x["query"].dtype)}

    return Call(with_state, backward, arguments, options, results)


def causal_convolution(x: Inputs, a: Attributes) -> Call:
    """Our convolution has the channels last; the activation after it is our silu. The last state is an output too."""
    arguments = {"x": x["input"].swapaxes(1, 2), "w": x["weight"][:, 0]}
    if "bias" in x:
        arguments["b"] = x["bias"]
    if "past_state" in x:
        arguments["state"] = x["past_state"].swapaxes(1, 2)
    active = a.get("activation", "none") != "none"

    def op(x: Any, w: Any, b: Any = None, state: Any = None) -> Any:
        y, cache = na.causal_convolution(x, w, b, state)
        z, silu_cache = na.silu(y) if active else (y, None)
        return (z, cache.state), (cache, silu_cache)

    def backward(dy: Any, caches: Any) -> Any:
        dz, dstate_end = dy
        return na.causal_convolution_backward(na.silu_backward(dz, caches[1]) if active else dz, caches[0], dstate_end)

    def results(y: Any, caches: Any) -> dict[str, np.ndarray]:
        return {"output": y[0].swapaxes(1, 2), "present_state": y[1].swapaxes(1, 2)}

    return Call(op, backward, arguments, {}, results)


def rotary(x: Inputs, a: Attributes) -> Call:
    cos, sin = x["cos_cache"], x["sin_cache"]
    if "position_ids" in x:
        cos, sin = cos[x["position_ids"]], sin[x["position_ids"]]  # (B, T, n)
    packed = x["input"].ndim == 3
    q = split(x["input"], a["num_heads"]) if packed else x["input"]
    options = {"pairing": "interleaved" if a.get("interleaved") else "half"}
    arguments = {"x": q, "cos": cos[:, None], "sin": sin[:, None]}
    return Call(na.rotate, na.rotate_backward, arguments, options, lambda y, _: {"output": as_packed(y, packed)})


def softmax(x: Inputs, a: Attributes) -> Call:
    return Call(na.softmax, na.softmax_backward, x, a, lambda y, cache: {"y": y})


def log_softmax(x: Inputs, a: Attributes) -> Call:
    return Call(na.log_softmax, na.log_softmax_backward, x, a, lambda y, cache: {"y": y})


def loss_options(a: Attributes, weights: np.ndarray | None) -> dict[str, Any]:
    """The options of a loss; the class weights have no gradient."""
    return {**a, "class_weights": weights}


def softmax_cross_entropy(x: Inputs, a: Attributes) -> Call:
    logits = np.moveaxis(x["x"], 1, -1)

    def results(y: np.ndarray, cache: Any) -> dict[str, np.ndarray]:
        return {"z": y, "log_prob": np.moveaxis(na.log_softmax(logits)[0], -1, 1)}

    arguments = {"logits": logits, "targets": x["y"]}
    op, backward = na.weighted_cross_entropy, na.weighted_cross_entropy_backward
    return Call(op, backward, arguments, loss_options(a, x.get("w")), results)


def negative_log_likelihood(x: Inputs, a: Attributes) -> Call:
    arguments = {"log_probs": np.moveaxis(x["input"], 1, -1), "targets": x["target"]}
    op, backward = na.negative_log_likelihood, na.negative_log_likelihood_backward
    return Call(op, backward, arguments, loss_options(a, x.get("weight")), lambda y, cache: {"loss": y})


def rows(x: np.ndarray, axis: int) -> np.ndarray:
    """The axes from `axis` on as one axis."""
    return x.reshape(*x.shape[: axis % x.ndim], -1)


def layer_norm(x: Inputs, a: Attributes) -> Call:
    axis, shape = a.get("axis", -1), x["X"].shape
    arguments = {"x": rows(x["X"], axis), "gamma": x["W"].reshape(-1), "beta": x["B"].reshape(-1)}

    def results(y: np.ndarray, cache: Any) -> dict[str, np.ndarray]:
        as_statistic = (*shape[: axis % len(shape)], *(1 for _ in shape[axis % len(shape) :]))
        mean = (arguments["x"] - cache.x_hat / cache.r)[..., 0]
        return {"Y": y.reshape(shape), "Mean": mean.reshape(as_statistic), "InvStdDev": cache.r.reshape(as_statistic)}

    return Call(na.layer_norm, na.layer_norm_backward, arguments, {"eps": a.get("epsilon", 1e-5)}, results)


def rms_norm(x: Inputs, a: Attributes) -> Call:
    arguments = {"x": rows(x["X"], a.get("axis", -1)), "gamma": x["W"].reshape(-1)}
    shape, options = x["X"].shape, {"eps": a.get("epsilon", 1e-5)}
    return Call(na.rms_norm, na.rms_norm_backward, arguments, options, lambda y, cache: {"Y": y.reshape(shape)})


def gelu(x: Inputs, a: Attributes) -> Call:
    options = {"approximate": a.get("approximate", "none")}
    return Call(na.gelu, na.gelu_backward, x, options, lambda y, cache: {"y": y})


def swish(x: Inputs, a: Attributes) -> Call:
    return Call(na.silu, na.silu_backward, x, a, lambda y, cache: {"y": y})


def swiglu(x: Inputs, a: Attributes) -> Call:
    """silu(a) b, as in our feed-forward network."""

    def op(a: Any, b: Any, alpha: float = 1.0) -> Any:
        gate, cache = na.silu(a, alpha)
        return gate * b, (gate, b, cache)

    def backward(dy: Any, cache: Any) -> Any:
        gate, b, silu_cache = cache
        return na.silu_backward(dy * b, silu_cache), dy * gate

    return Call(op, backward, x, a, lambda y, cache: {"y": y})


@dataclass(frozen=True)
class Operator:
    """An operator of the standard: the module and the number of its cases, and its adapters."""

    module: str
    number: int
    adapters: tuple[Callable[[Inputs, Attributes], Call | None], ...]  # the first one answers every case


OPERATORS = {
    "Attention": Operator("attention", 93, (attention, tiled_attention)),
    "FlexAttention": Operator("flexattention", 11, (flex_attention,)),
    "LinearAttention": Operator("linear_attention", 14, (linear_attention, chunked_linear_attention)),
    "CausalConvWithState": Operator("causal_conv_with_state", 13, (causal_convolution,)),
    "RotaryEmbedding": Operator("rotaryembedding", 8, (rotary,)),
    "Softmax": Operator("softmax", 7, (softmax,)),
    "LogSoftmax": Operator("logsoftmax", 7, (log_softmax,)),
    "SoftmaxCrossEntropyLoss": Operator("softmax_cross_entropy_loss", 34, (softmax_cross_entropy,)),
    "NegativeLogLikelihoodLoss": Operator("negativeloglikelihoodloss", 18, (negative_log_likelihood,)),
    "LayerNormalization": Operator("layernormalization", 19, (layer_norm,)),
    "RMSNormalization": Operator("rmsnormalization", 19, (rms_norm,)),
    "Gelu": Operator("gelu", 4, (gelu,)),
    "Swish": Operator("swish", 1, (swish,)),
    "SwiGLU": Operator("swiglu", 3, (swiglu,)),
}
