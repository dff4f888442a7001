"""The cases of the benchmark in PyTorch, as PyTorch's users write them."""

from collections.abc import Callable
from typing import Any

import numpy as np

try:
    import torch
except ImportError:
    raise ImportError("PyTorch is not installed: pip install '.[bench]'") from None
from torch import Tensor
from torch.nn import functional as F

from tests.benchmarks.torch_gpt import TorchGPT, TorchRun
from tests.benchmarks.work import (
    BETA_2,
    DECAY,
    NO_GRADIENT,
    RATE,
    Case,
    Unavailable,
    Work,
    cotangent,
    generator_model,
    model_and_batches,
    op_of,
    prompts,
)


def make(case: Case, variant: str, threads: int) -> Work:
    torch.set_num_threads(threads)
    if case["kind"] in ("step", "long"):
        return _step(case["size"], compiled=variant == "compile", checked=1 if case["kind"] == "long" else 3)
    if case["kind"] == "generation":
        return _generation(case)
    return _op(case, written_out=variant == "written_out")


def _step(size: str, compiled: bool, checked: int) -> Work:
    model, batches = model_and_batches(size)
    run = TorchRun(model, RATE, BETA_2, DECAY)
    del model
    if compiled:
        run.model = torch.compile(run.model)
    turns = iter(range(10**9))

    def step() -> float:
        return run.step(*batches[next(turns) % 4])

    def results() -> list[float]:
        try:
            return [step() for _ in range(checked)]
        except Exception as error:   # for example, no C++ compiler
            if not compiled:
                raise
            raise Unavailable(f"torch.compile: {str(error).splitlines()[0]}") from None

    return Work(step, results)


def _op(case: Case, written_out: bool) -> Work:
    name, inputs, options = op_of(case)
    tensors = {n: torch.from_numpy(a.copy()) for n, a in inputs.items()}
    wanted = [tensors[n].requires_grad_() for n in inputs if n not in NO_GRADIENT]
    dy = torch.from_numpy(np.array(cotangent(name, inputs)))
    forward = FORWARD[name]
    if written_out or (case["kind"] == "op" and name == "scaled_dot_product_attention"):
        forward, options = softmax_qk_v, {"causal": options.get("causal", True)}

    def call() -> list[Tensor]:
        y = forward(*tensors.values(), **options)
        y = y.reshape(dy.shape)
        return [y, *torch.autograd.grad(y, wanted, dy)]

    def results() -> list[float]:
        y, *grads = call()
        return [y.item() if y.ndim == 0 else norm(y), *map(norm, grads)]

    return Work(call, results)


def norm(x: Tensor) -> float:
    return x.norm(dtype=torch.float64).item()


def softmax_qk_v(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Attention as in the formula, with all T x T weights."""
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if causal:
        hidden = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(hidden, -torch.inf)
    return torch.softmax(scores, -1) @ v


def fused_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """PyTorch's attention with little memory; it needs arrays of four axes."""
    q, k, v = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


FORWARD: dict[str, Callable[..., Any]] = {
    "linear": lambda x, w, b: torch.addmm(b, x, w),
    "layer_norm": lambda x, gamma, beta: F.layer_norm(x, x.shape[-1:], gamma, beta),
    "rms_norm": lambda x, gamma: F.rms_norm(x, x.shape[-1:], gamma, 1e-6),
    "softmax": lambda x: torch.softmax(x, -1),
    "gelu": lambda x, approximate="tanh": F.gelu(x, approximate=approximate),
    "silu": F.silu,
    "relu": F.relu,
    "embedding": F.embedding,
    "scaled_dot_product_attention": softmax_qk_v,
    "tiled_attention": fused_attention,
    "cross_entropy": F.cross_entropy,
}


def _generation(case: Case) -> Work:
    model, ids = TorchGPT(generator_model()), torch.from_numpy(prompts(case))

    def generate(num_tokens: int) -> list[float]:
        texts = greedy(model, ids, num_tokens, case["cache"])
        return [float(token) for text in texts for token in text[case["prompt"]:]]

    return Work(lambda: generate(case["tokens"]), lambda: generate(8))


@torch.inference_mode()
def greedy(model: TorchGPT, ids: Tensor, num_tokens: int, use_cache: bool) -> list[list[int]]:
    """Append the most likely token, num_tokens times; the memory of the KV cache is allocated once."""
    past: list[tuple[Tensor, Tensor]] = []
    if use_cache:
        H = model.blocks[0].num_heads
        shape = (len(ids), H, ids.shape[1] + num_tokens, model.tokens.embedding_dim // H)
        past = [(torch.empty(shape), torch.empty(shape)) for _ in model.blocks]
    start, new = 0, ids
    for _ in range(num_tokens):
        next_ids = logits_of_last(model, new, start, past).argmax(-1)   # (B,)
        ids = torch.cat([ids, next_ids[:, None]], dim=1)
        start, new = (ids.shape[1] - 1, ids[:, -1:]) if use_cache else (0, ids)
    return ids.tolist()


def logits_of_last(model: TorchGPT, ids: Tensor, start: int, past: list[tuple[Tensor, Tensor]]) -> Tensor:
    T = ids.shape[1]
    x = model.tokens(ids) + model.positions.weight[start : start + T]
    for i, block in enumerate(model.blocks):
        heads = block.qkv(block.norm_1(x)).unflatten(-1, (3, block.num_heads, -1))
        q, k, v = heads.permute(2, 0, 3, 1, 4)
        if past:
            keys, values = past[i]
            keys[:, :, start : start + T], values[:, :, start : start + T] = k, v
            k, v = keys[:, :, : start + T], values[:, :, : start + T]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=T > 1)
        x = x + block.out(y.transpose(1, 2).flatten(-2))
        x = x + block.down(F.gelu(block.up(block.norm_2(x)), approximate="tanh"))
    return F.linear(model.norm(x[:, -1]), model.tokens.weight)
