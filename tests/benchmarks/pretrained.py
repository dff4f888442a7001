"""The work to measure with a real model, SmolLM2-135M-Instruct in float32, and our NumPy code for it.

    prompt         read a text of 512 tokens, fill the KV cache, and compute the logits of the last position
    generation     write 128 tokens, always the most likely one; the time includes reading a prompt of 16 tokens
    LoRA step      forward, backward and AdamW on 4 texts of 128 tokens, rank 8 on the seven matrices of each block
    first word     a new process loads libraries and model, reads a prompt, and prints the most likely next word

For prompt and generation, our threads share the pieces of the prompt, and BLAS gets its threads for the next token as
long as this is faster, as in `chat`. A step cuts its batch into one shard per thread, as in `train`. The first word is
the command `python -m numpy_attention sample smollm2 --tokens 1`, which dequantizes the GGUF file. transformers would
take many times as long to dequantize, so it loads a folder with the same weights in float32.

There are two lower limits. "products alone", for prompt and step, computes only the rows times the matrices of the
model (forward and backward in a step), without attention. "reading alone", for generation, reads as many numbers per
token as the model has parameters. Each token needs all parameters, because a tied model uses its table as the head.
"""

import math
import os
import subprocess
import sys
import zlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.models.generate import last_logits, stream
from numpy_attention.models.gpt import GPT
from numpy_attention.pretrained.fetch import located
from numpy_attention.pretrained.gguf_files import read_gguf
from numpy_attention.pretrained.load import load_pretrained
from numpy_attention.pretrained.low_rank import add_low_rank, matrices
from numpy_attention.pretrained.tokenizer import tokenizer_of_gguf
from numpy_attention.training.data import default_text
from numpy_attention.training.optimizers import AdamW
from numpy_attention.training.parallel import Workers, loss_and_gradients
from tests.benchmarks.work import BETA_2, DECAY, PROCESS_RESOURCES, RATE, Case, Unavailable, Work, lend_threads

MODEL = "smollm2"
SHORT_PROMPT, FIRST_PROMPT = 16, "The capital of France is"
BATCH, RANK, NUM_BATCHES = 4, 8, 4


def cases(quick: bool) -> list[Case]:
    """The cases of the kind `pretrained`; `tokens` is the number of tokens that the model reads or writes."""
    prompt, generated, T = (64, 16, 16) if quick else (512, 128, 128)
    tokens = {"prompt": prompt, "generation": generated, "LoRA step": BATCH * T}
    return [{"kind": "pretrained", "name": name, "tokens": count} for name, count in tokens.items()] + [
        {"kind": "pretrained", "name": "first word"}
    ]


def make(case: Case, variant: str, threads: int) -> Work:
    """Our code for a case: "ours" as in the commands, "products" and "reading" are the lower limits."""
    if case["name"] == "first word":
        options = ["--prompt", FIRST_PROMPT, "--tokens", "1", "--temperature", "0"]
        return first_word([sys.executable, "-m", "numpy_attention", "sample", MODEL, *options], threads)
    path = located(MODEL)
    if variant == "reading":
        numbers = sum(math.prod(stored.shape) for stored in read_gguf(path)[1].values())
        return reading(numbers, case["tokens"], threads)
    if variant == "products":
        return products(load_pretrained(path).model, case, threads)
    return work_of(load_pretrained(path).model, text_ids(path), case, threads)


def text_ids(path: Path) -> np.ndarray:
    """A few thousand ids of an English text that is part of every Python."""
    settings, _ = read_gguf(path)
    return tokenizer_of_gguf(settings).encode(default_text()[:20_000])


def batches(ids: np.ndarray, tokens: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches from the beginning of a text; the targets are the ids one step later."""
    T = tokens // BATCH
    rows = ids[: NUM_BATCHES * BATCH * (T + 1)].reshape(NUM_BATCHES, BATCH, T + 1)
    return [(batch[:, :-1], batch[:, 1:]) for batch in rows]


def work_of(model: GPT, ids: np.ndarray, case: Case, threads: int) -> Work:
    """A case that runs in this process."""
    if case["name"] == "LoRA step":
        return _low_rank_step(model, batches(ids, case["tokens"]), threads)
    lend_threads(threads, blas_threads=1)  # as the commands do
    if case["name"] == "generation":
        prompt = ids[:SHORT_PROMPT]
        return Work(
            lambda: list(stream(model, prompt, case["tokens"], temperature=0.0)),
            lambda: [float(token) for token in stream(model, prompt, 32, temperature=0.0)],
        )

    def read() -> np.ndarray:
        past = [KeyValueCache(model.config.context_length) for _ in model.blocks]
        return last_logits(model, ids[None], np.zeros(1, np.int64), case["tokens"], past)[0]

    return Work(read, lambda: summary(read()))


def summary(logits: np.ndarray) -> list[float]:
    """Numbers to compare two vectors of logits: the norm, the most likely token, the 16 largest logits."""
    highest = np.sort(logits)[-16:]
    return [float(np.linalg.norm(logits.astype(np.float64))), float(np.argmax(logits)), *highest.tolist()]


def with_low_rank(model: GPT) -> GPT:
    """Add low-rank matrices to the model, with the same initial values for every contender."""
    add_low_rank(model, RANK, rng=np.random.default_rng(0))
    return model


def _low_rank_step(model: GPT, batches: Sequence[tuple[np.ndarray, np.ndarray]], threads: int) -> Work:
    workers = PROCESS_RESOURCES.enter_context(Workers(threads))
    optimizer = AdamW(with_low_rank(model).parameters(), RATE, 0.9, BETA_2, weight_decay=DECAY, workers=workers)
    turns = iter(range(10**9))

    def step() -> float:
        batch = batches[next(turns) % len(batches)]
        loss, grads = loss_and_gradients(model, batch, threads, workers, [None] * threads)
        optimizer.step(grads)
        return float(loss)

    return Work(step, lambda: [step() for _ in range(3)])


def products(model: GPT, case: Case, threads: int) -> Work:
    """The rows of a prompt times every matrix, each thread with its rows; in a step, also times w^T."""
    step = case["name"] == "LoRA step"
    rows = case["tokens"] // threads
    table = model.token_embedding.table
    factors = [(rows, w) for *_, w in matrices(model)] + [(rows if step else 1, table.T)]  # prompt: only its last row
    vectors = {width: np.ones((rows, width), table.dtype) for _, w in factors for width in w.shape}
    workers = PROCESS_RESOURCES.enter_context(Workers(threads))

    def one(_: int) -> None:
        for n, w in factors:
            d_in, d_out = w.shape
            vectors[d_in][:n] @ w  # y = x w
            if step:
                vectors[d_out][:n] @ w.T  # dx = dy w^T

    return Work(lambda: list(workers.map(one, range(threads))), list)


def reading(numbers: int, tokens: int, threads: int) -> Work:
    """Read all numbers (float32) once per token with `np.max`; each thread reads one part."""
    parts = np.ones((threads, numbers // threads), np.float32)
    pool = ThreadPoolExecutor(threads)

    def once() -> list[np.float32]:
        return list(pool.map(np.max, parts))

    return Work(lambda: [once() for _ in range(tokens)], list)


def first_word(command: list[str], threads: int) -> Work:
    """A command from its start to its end; all contenders must print the same text."""
    limits = {name: str(threads) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}

    def output() -> str:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | limits)
        if done.returncode:
            raise Unavailable((done.stderr.strip().splitlines() or ["the command failed without a message"])[-1])
        return done.stdout.strip()

    return Work(output, lambda: [float(zlib.crc32(output().encode()))], _peak_of_commands)


def _peak_of_commands() -> int | None:
    """The peak memory of the commands that this process ran, in bytes; None on systems other than Linux."""
    if sys.platform != "linux":
        return None
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
