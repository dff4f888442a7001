"""Each op, forward and backward, against PyTorch eager.

    python tests/benchmarks/bench_ops.py                     # the ops of a transformer
    python tests/benchmarks/bench_ops.py --attention         # attention alone, for growing T
    python tests/benchmarks/bench_ops.py --only layer_norm

Ours runs twice: as the training loop runs it, the batch cut into one shard a thread with BLAS held to one thread each,
and whole, with BLAS using the threads.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
import numpy_attention as na
from tests.benchmarks.timing import (
    Contender,
    Result,
    assert_same_work,
    blas_threads,
    compare,
    machine,
    milliseconds,
    table,
    torch_with,
)

SHARED = {"w", "b", "gamma", "beta", "table"}   # arguments that all examples share: their gradients are added up

Inputs = dict[str, np.ndarray]


def normal(*shape: int) -> np.ndarray:
    return np.asarray(np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32))


def ids(V: int, *shape: int) -> np.ndarray:
    return np.random.default_rng(V).integers(0, V, shape)


def cases(F: Any, torch: Any) -> dict[str, tuple[str, Inputs, dict[str, Any], Callable[..., Any]]]:
    """Name -> op, inputs, options, and the same in PyTorch."""
    x = {"x": normal(4096, 768)}
    norm = {**x, "gamma": normal(768), "beta": normal(769)[:768].copy()}
    linear = {**x, "w": normal(768, 3072), "b": normal(3072)}
    heads = {"q": normal(16, 6, 256, 64), "k": normal(16, 6, 256, 64) + 1, "v": normal(16, 6, 256, 64) - 1}
    mask = np.tri(256, dtype=bool)

    def attention(q: Any, k: Any, v: Any) -> Any:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def attention_written_out(q: Any, k: Any, v: Any) -> Any:
        scores = (q @ k.transpose(-1, -2) / 8.0).masked_fill(~torch.from_numpy(mask), -torch.inf)
        return torch.softmax(scores, -1) @ v

    def loss(logits: Any, targets: Any) -> Any:
        return F.cross_entropy(logits, targets)

    return {
        "linear (4096, 768) by (768, 3072)": ("linear", linear, {}, lambda x, w, b: torch.addmm(b, x, w)),
        "layer_norm (4096, 768)": ("layer_norm", norm, {}, lambda x, gamma, beta: F.layer_norm(x, (768,), gamma, beta)),
        "rms_norm (4096, 768)": (
            "rms_norm", {"x": x["x"], "gamma": norm["gamma"]}, {}, lambda x, gamma: F.rms_norm(x, (768,), gamma, 1e-6),
        ),
        "softmax (4096, 768)": ("softmax", x, {}, lambda x: torch.softmax(x, -1)),
        "gelu, tanh (4096, 768)": ("gelu", x, {}, lambda x: F.gelu(x, approximate="tanh")),
        "gelu, exact (4096, 768)": ("gelu", x, {"approximate": "none"}, F.gelu),
        "silu (4096, 768)": ("silu", x, {}, F.silu),
        "relu (4096, 768)": ("relu", x, {}, F.relu),
        "embedding V = 65": ("embedding", {"ids": ids(65, 16, 256), "table": normal(65, 768)}, {}, F.embedding),
        "embedding V = 50257": (
            "embedding", {"ids": ids(50257, 16, 256), "table": normal(50257, 768)}, {}, F.embedding,
        ),
        "cross_entropy (4096, 768)": (
            "cross_entropy", {"logits": normal(4096, 768), "targets": ids(768, 4096)}, {}, loss,
        ),
        "cross_entropy (256, 50257)": (
            "cross_entropy", {"logits": normal(256, 50257), "targets": ids(50257, 256)}, {}, loss,
        ),
        "attention, causal (16, 6, 256, 64)": (
            "scaled_dot_product_attention", heads, {"mask": mask}, attention_written_out,
        ),
        "tiled_attention, causal (16, 6, 256, 64)": ("tiled_attention", heads, {"causal": True}, attention),
    }


def attention_cases(F: Any, torch: Any, longest: int) -> dict[str, Any]:
    """One sequence, 8 heads of 64, causal and full, T growing fourfold in cost."""
    found: dict[str, Any] = {}
    for T in (T for T in (256, 512, 1024, 2048, 4096, 8192, 16384) if T <= longest):
        heads = {"q": normal(8, T, 64), "k": normal(8, T, 64) + 1, "v": normal(8, T, 64) - 1}
        for causal in (True, False):
            found[f"tiled_attention, T = {T}, {'causal' if causal else 'full'}"] = (
                "tiled_attention", heads, {"causal": causal},
                lambda q, k, v, causal=causal: F.scaled_dot_product_attention(q, k, v, is_causal=causal),
            )
    return found


def shards(inputs: Inputs, count: int) -> list[Inputs]:
    """The examples in `count` parts; shared arguments whole in each."""
    cut = {name: [array] * count if name in SHARED else np.array_split(array, count) for name, array in inputs.items()}
    return [{name: parts[i] for name, parts in cut.items()} for i in range(count)]


def in_shards(op: str, inputs: Inputs, options: dict[str, Any], dy: np.ndarray, pool: Executor, count: int) -> Any:
    """A function that runs op and backward with one thread a shard, as the training loop does."""
    forward, backward = getattr(na, op), getattr(na, f"{op}_backward")
    parts = shards(inputs, count)
    dys = np.array_split(dy, count) if dy.ndim else [dy / count] * count   # a mean over all: equal shards weigh alike

    def work(part: Inputs, dy: np.ndarray) -> tuple[np.ndarray, ...]:
        y, cache = forward(**part, **options)
        grads = backward(dy, cache)
        return (y, *(g for g in grads if g is not None)) if isinstance(grads, tuple) else (y, grads)

    def run() -> list[tuple[np.ndarray, ...]]:
        results = list(pool.map(work, parts, dys))
        for shared, name in enumerate((n for n in inputs if n not in ("ids", "targets")), start=1):
            if name in SHARED:
                for other in results[1:]:
                    results[0][shared][...] += other[shared]
        return results

    def whole() -> list[np.ndarray]:
        results = run()
        kinds = ["mean" if not dy.ndim else "y", *(n for n in inputs if n not in ("ids", "targets"))]
        columns = list(zip(*results, strict=True))
        return [
            column[0] if kind in SHARED else np.mean(column) if kind == "mean" else np.concatenate(column)
            for kind, column in zip(kinds, columns, strict=True)
        ]

    return run, whole


def measure(name: str, case: Any, torch: Any, rounds: int, threads: int) -> dict[str, Result]:
    op, inputs, options, in_torch = case
    tensors = [torch.from_numpy(array.copy()) for array in inputs.values()]
    wanted = [tensor.requires_grad_() for tensor in tensors if tensor.is_floating_point()]
    with torch.no_grad():
        dy = normal(*in_torch(*tensors).shape)
    dy_torch = torch.from_numpy(np.asarray(dy))

    def theirs() -> tuple[Any, ...]:
        y = in_torch(*tensors)
        return y, *torch.autograd.grad(y, wanted, dy_torch)

    with ThreadPoolExecutor(threads) as pool:
        run, whole = in_shards(op, inputs, options, dy, pool, threads)
        run_whole, _ = in_shards(op, inputs, options, dy, pool, 1)
        contenders = {
            "PyTorch": Contender(theirs),
            "shards": Contender(run, blas_threads(1)),
            "BLAS threads": Contender(run_whole, blas_threads(threads)),
        }
        with blas_threads(1)():
            assert_same_work(whole(), theirs(), name)
        return compare(contenders, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description="each op, forward and backward, against PyTorch eager")
    parser.add_argument("--attention", action="store_true", help="attention alone for growing T")
    parser.add_argument("--longest", type=int, default=4096, help="the longest T of --attention (default %(default)s)")
    parser.add_argument("--only", default="", help="only cases whose name holds this")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch = torch_with(args.threads)
    F = torch.nn.functional
    chosen = attention_cases(F, torch, args.longest) if args.attention else cases(F, torch)

    def rows() -> Iterator[list[str]]:
        for name, case in chosen.items():
            if args.only in name:
                results = measure(name, case, torch, args.rounds, args.threads)
                ratios = [f"**{results['shards'].ratio:.2f}**", f"{results['BLAS threads'].ratio:.2f}"]
                yield [name, *map(milliseconds, results.values()), *ratios]

    print(machine(args.threads, torch) + "\n")
    ours = [f"numpy_attention, {args.threads} shards, ms", "whole, BLAS's threads, ms"]
    table(["op, forward + backward", "PyTorch eager, ms", *ours, "ratio", "ratio, whole"], rows())


if __name__ == "__main__":
    main()
