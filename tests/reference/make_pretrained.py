"""Computes the reference results of pretrained models, with `transformers` on PyTorch, in float64.

    python tests/reference/make_pretrained.py            # writes pretrained.npz and real_models.npz in this folder

The first file holds results of the tiny checkpoints in tests/pretrained/tiny.py. The second file holds results of the
two models that `python -m numpy_attention fetch` downloads. Only `transformers` reads the models, GGUF files too. The
script needs the dependency group `reference`; the tests that read the results do not.
"""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
import transformers
from torch.nn import functional as F
from transformers.utils.chat_template_utils import render_jinja_template

sys.path.insert(0, str(Path(__file__).parents[2]))
from numpy_attention.pretrained.c33_gguf_files import read_gguf
from numpy_attention.pretrained.c35_tokenizer import tokenizer_of_gguf
from numpy_attention.pretrained.fetch import fetch
from tests.pretrained import tiny
from tests.reference.pretrained_cases import PROMPTS, TURNS, batch, direction, places, sentences

HERE = Path(__file__).parent
Vectors = dict[str, np.ndarray]


@contextlib.contextmanager
def in_float64() -> Iterator[None]:
    """Makes `torch.float32` mean float64: `transformers` computes angles and norms in float32 for any dtype."""
    torch.set_default_dtype(torch.float64)
    try:
        with (
            mock.patch.object(torch, "float32", torch.float64), mock.patch.object(torch, "float", torch.float64),
            mock.patch.object(torch.Tensor, "float", torch.Tensor.double),
        ):  # fmt: skip
            yield
    finally:
        torch.set_default_dtype(torch.float32)


def loaded(path: Path, kind: Any = transformers.AutoModelForCausalLM) -> Any:
    """The model as `transformers` reads it, rebuilt so that nothing is rounded to float32."""
    where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name} if path.is_file() else {
        "pretrained_model_name_or_path": path
    }  # fmt: skip
    read = kind.from_pretrained(**where, dtype=torch.float64, experts_implementation="eager")  # others need float32
    with in_float64():
        model = type(read)(read.config).double()
    model.load_state_dict(read.state_dict())
    return model.eval()


def gradients(model: Any, samples: int = 0) -> Vectors:
    """For each tensor, named as in a folder: its gradient's norm, sums along two random directions, and samples."""
    of: Vectors = {}
    for name, p in model.named_parameters():
        if p.grad is not None:
            of |= as_in_folder(model.config.model_type, name, p.grad.numpy())
    sums = [[np.linalg.norm(g), *(np.vdot(direction(name, i, g.shape), g) for i in range(2))] for name, g in of.items()]
    some = [g.reshape(-1)[places(name, samples, g.size)] for name, g in of.items()]
    found = {"names": np.array(list(of)), "gradients": np.array(sums)}
    return found | ({"some of the gradients": np.array(some, np.float32)} if samples else {})


def as_in_folder(kind: str, name: str, g: np.ndarray) -> Vectors:
    """The tensor as in a folder. `transformers` joins the experts of a layer, and it renames those of a mixtral."""
    if kind == "mixtral":
        name = name.replace(".mlp.", ".block_sparse_moe.")
    before, experts, joined = name.partition(".experts.")
    if not experts:
        return {name: g}
    of_mixtral = {"gate": "w1", "up": "w3", "down": "w2"}
    parts = [of_mixtral[s] if kind == "mixtral" else f"{s}_proj" for s in joined.removesuffix("_proj").split("_")]
    return {
        f"{before}.experts.{e}.{part}.weight": of_part
        for e, of_one in enumerate(g) for part, of_part in zip(parts, np.split(of_one, len(parts)))
    }  # fmt: skip


def language_model(name: str, path: Path) -> Vectors:
    """Loss, logits along random directions, and gradients of a tiny GPT."""
    model = loaded(path)
    ids, targets, _ = batch(name, model.config.vocab_size)
    with in_float64():
        logits = model(torch.from_numpy(ids)).logits
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(targets).flatten())
        loss.backward()
    along = direction(name, 0, (logits.shape[-1], 5))
    return {"loss": loss.detach().numpy(), "logits": logits.detach().numpy() @ along, **gradients(model)}


def directions(model: Any, ids: np.ndarray, mask: np.ndarray) -> torch.Tensor:
    """The text vectors of Sentence-BERT: the mean over the visible tokens, scaled to length 1."""
    visible = torch.from_numpy(mask)
    u = model(torch.from_numpy(ids), attention_mask=visible.long()).last_hidden_state * visible[:, :, None]
    return F.normalize(u.sum(1) / visible.sum(1, keepdim=True), dim=-1)


def text_encoder(name: str, path: Path) -> Vectors:
    """Text vectors and gradients of a tiny BERT, with padding."""
    model = loaded(path, transformers.BertModel)
    ids, _, lengths = batch(name, model.config.vocab_size)
    with in_float64():
        y = directions(model, ids, np.arange(ids.shape[1]) < lengths[:, None])
        y.backward(torch.from_numpy(direction(name, 0, tuple(y.shape)).astype(np.float64)))
    return {"y": y.detach().numpy(), **gradients(model)}


def tiny_models() -> Vectors:
    found: Vectors = {}
    for name in tiny.CASES:
        with tempfile.TemporaryDirectory() as at:
            path = tiny.write(Path(at), name)
            of_one = (text_encoder if name == "bert" else language_model)(name, path)
        found |= {f"{name}/{key}": array for key, array in of_one.items()}
    return found


def smollm2() -> Vectors:
    """Sampled logits, sums of all logits along random directions, gradients, and a conversation as text."""
    path = fetch("smollm2")
    settings, _ = read_gguf(path)
    text = tokenizer_of_gguf(settings)
    rows = [text.encode(prompt) for prompt in PROMPTS]
    T = min(map(len, rows))
    ids = np.array([row[:T] for row in rows])
    model = loaded(path)
    with in_float64():
        logits = model(torch.from_numpy(ids[:, :-1])).logits
        loss = F.cross_entropy(logits.flatten(0, 1), torch.from_numpy(ids[:, 1:]).flatten())
        loss.backward()
    y = logits.detach().numpy()
    messages = [{"role": role, "content": message} for role, message in TURNS]
    [message], _ = render_jinja_template(
        [messages], chat_template=settings["tokenizer.chat_template"], add_generation_prompt=True
    )
    return {
        "ids": ids, "loss": loss.detach().numpy(), "logits": y @ direction("smollm2", 0, (y.shape[-1], 4)),
        "some logits": y[:, ::5, places("smollm2", 500, y.shape[-1])].astype(np.float32), "best": y.argmax(-1),
        "conversation": np.array(message), **gradients(model, samples=12),
    }  # fmt: skip


def minilm() -> Vectors:
    """The ids of the sentences, a quarter of the coordinates of their vectors, and sums along random directions."""
    path = fetch("minilm")
    tokenizer, model = transformers.AutoTokenizer.from_pretrained(path), loaded(path, transformers.BertModel)
    rows = [tokenizer(sentence).input_ids for sentence in sentences()]
    lengths = np.array([len(row) for row in rows])
    ids = np.array([row + [0] * (lengths.max() - len(row)) for row in rows])
    with torch.no_grad(), in_float64():
        y = directions(model, ids, np.arange(ids.shape[1]) < lengths[:, None]).numpy()
    return {
        "ids": np.concatenate(rows).astype(np.int32), "lengths": lengths, "some": y[:, ::4].astype(np.float32),
        "y": y @ direction("minilm", 0, (y.shape[1], 8)),
    }  # fmt: skip


def real_models() -> Vectors:
    found = {"smollm2": smollm2(), "minilm": minilm()}
    return {f"{name}/{key}": array for name, one in found.items() for key, array in one.items()}


def main() -> None:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    versions = f"torch {torch.__version__}, transformers {transformers.__version__}"
    for make, file in ((tiny_models, HERE / "pretrained.npz"), (real_models, HERE / "real_models.npz")):
        fresh = make()
        np.savez_compressed(file, versions=np.array(versions), **fresh)
        print(f"{file.name}: {len(fresh)} arrays, {file.stat().st_size / 1024:.0f} KB, {versions}")


if __name__ == "__main__":
    main()
