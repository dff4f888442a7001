"""embed: find the lines of a text whose meaning is nearest to a query."""

import argparse
import sys
import time
from typing import Any

import numpy as np

from numpy_attention.app.source import add_model, encoded, load_model, named_path
from numpy_attention.errors import InputError
from numpy_attention.files import reading
from numpy_attention.models.text_encoder import TextEncoder
from numpy_attention.pieces import non_finite
from numpy_attention.training.data import read_text
from numpy_attention.training.parallel import Workers, default_workers
from numpy_attention.training.progress import Progress

LONGEST = 2**24  # bytes of the text; with short lines, their directions and tokens need a hundred times this memory


def add_parser(commands: Any) -> None:
    """The arguments of `embed`."""
    parser = commands.add_parser("embed", help="find the lines of a text nearest in meaning", allow_abbrev=False)
    add_model(parser, "minilm", "or a folder of a BERT in Hugging Face's layout")
    about = "a UTF-8 text of at most 16 MB; each line that is not empty is compared"
    parser.add_argument("file", type=named_path, metavar="FILE", help=about)
    parser.add_argument("--query", required=True, help="the text to compare the lines with")
    parser.add_argument("--top", type=int, default=5, metavar="N", help="the number of lines to show (default: 5)")
    parser.add_argument("--batch", type=int, default=2048, metavar="N", help="tokens in one pass (default: 2048)")
    parser.set_defaults(run=run)


def run(a: argparse.Namespace) -> int:
    """Print the nearest lines, each with its cosine and its line number."""
    for option, value in (("--top", a.top), ("--batch", a.batch)):
        if value < 1:
            raise InputError(f"{option} must be at least 1, got {value}")
    if not a.query.strip():
        raise InputError("--query must hold at least one word")
    with reading(a.file):
        size = a.file.stat().st_size
    if size > LONGEST:
        raise InputError(f"{a.file} has {size:,} bytes; embed reads at most {LONGEST:,}: split it into several files")
    lines = {n: line.strip() for n, line in enumerate(read_text(a.file).split("\n"), 1) if line.strip()}
    if not lines:
        raise InputError(f"{a.file} holds only empty lines")
    model, vocabulary = load_model(a.model, TextEncoder, "compare meanings")
    limit = model.config.context_length
    query = encoded(vocabulary, a.query, "--query")
    if len(query) > limit:
        raise InputError(f"--query is {len(query)} tokens long; the model reads at most {limit}")
    ids = [encoded(vocabulary, line, str(a.file)) for line in lines.values()]
    start = time.perf_counter()
    y = directions(model, [query, *(within(one, limit) for one in ids)], a.batch)  # (1 + N, d_model)
    cosines = y[1:] @ y[0]  # (N,)
    if value := non_finite(cosines):
        raise InputError(f"embed: the cosines are {value}: the weights are too large or damaged")
    cut = sum(len(one) > limit for one in ids)
    shortened = f"; {cut} longer than {limit} tokens, cut to their beginning" if cut else ""
    counted = "1 line" if len(lines) == 1 else f"{len(lines):,} lines"
    print(f"{counted} in {time.perf_counter() - start:.1f} s{shortened}", file=sys.stderr)
    numbers, width = list(lines), len(str(max(lines)))
    for i in np.argsort(-cosines, kind="stable")[: a.top]:
        print(f"{cosines[i]:6.3f}  {numbers[i]:>{width}}  {lines[numbers[i]]}")
    return 0


def within(ids: np.ndarray, limit: int) -> np.ndarray:
    """Cut ids that are too long: keep the beginning and the last id, which marks the end of a text."""
    return ids if len(ids) <= limit else np.append(ids[: limit - 1], ids[-1])


def directions(model: TextEncoder, texts: list[np.ndarray], batch: int) -> np.ndarray:
    """The direction of each text. A batch holds texts of similar length, with at most `batch` tokens, with padding.

    Shapes: texts of N times (T,) -> (N, d_model).
    """
    lengths = np.array([len(ids) for ids in texts])
    order = np.argsort(-lengths, kind="stable")  # the longest first: a lack of memory shows at once
    batches = []  # the texts of each batch
    while len(order):
        rows, order = np.split(order, [min(max(1, batch // max(1, int(lengths[order[0]]))), len(order))])
        batches.append(rows)
    y = np.zeros((len(texts), model.config.d_model), model.token_embedding.table.dtype)
    workers = Workers(default_workers(len(batches), int(lengths.sum()) * model.num_parameters()))
    with Progress(len(texts), 0, "text") as progress, workers:

        def read(rows: np.ndarray) -> None:
            ids = np.zeros((len(rows), max(1, int(lengths[rows[0]]))), dtype=np.int64)
            for line, row in zip(ids, rows):
                line[: lengths[row]] = texts[row]
            y[rows], _ = model.forward(ids, lengths=lengths[rows])
            for _ in rows:
                progress.advance(None)

        list(workers.map(read, batches, one_by_one=len(batches) == 1))
    return y
