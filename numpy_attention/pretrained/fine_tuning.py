"""text --from MODEL: fine-tune a pretrained model on a text: all its parameters, or a low-rank change (Chapter 37).

The tokenizer comes with the model. The text is split as for a model that starts from random parameters, so the losses
can be compared. The report compares the model before the fine-tuning with the model after it.
"""

import hashlib
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from numpy_attention.errors import InputError, shell_path
from numpy_attention.files import reading
from numpy_attention.models.c23_gpt import GPT
from numpy_attention.pretrained.c36_load import Pretrained, load_pretrained
from numpy_attention.pretrained.c37_low_rank import add_low_rank, merge_low_rank
from numpy_attention.pretrained.fetch import located
from numpy_attention.pretrained.safetensors_files import export_safetensors
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.text import TextTask


class Start:
    """The pretrained model that a run starts from."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.path = located(config.from_ or "")
        if (self.path / checkpoint.NAME).exists():
            fix = f"continue it with --resume {shell_path(self.path)}, or name a pretrained model"
            raise InputError(f"--from {self.path} is the output of a training run; {fix}")
        self.sha256 = fingerprint(self.path)
        self._loaded: Pretrained | None = self._load()
        self.tokenizer = self._loaded.tokenizer

    def model(self, rng: np.random.Generator | None) -> GPT:
        """The model, with a low-rank change if the configuration asks for one."""
        model = self.untouched()
        c = self.config
        if c.lora:
            add_low_rank(model, c.lora, c.lora_alpha or None, rng or np.random.default_rng(0))
        return model

    def untouched(self) -> GPT:
        """The pretrained model, unchanged."""
        loaded, self._loaded = self._loaded or self._load(), None  # the next caller gets a new model
        assert isinstance(loaded.model, GPT)
        return loaded.model

    def saved(self) -> dict[str, Any]:
        """The fingerprint; it identifies the pretrained model, whose weights are not in the checkpoint."""
        return {"from_sha256": self.sha256}

    def write_result(self, model: GPT, directory: Path) -> str:
        """Write the low-rank change alone, or the model with the change merged into it, at the end of a run."""
        c = self.config
        if not c.lora:
            return ""
        if c.keep == "merged":
            merge_low_rank(model)
        export_safetensors(model, directory / f"{c.keep}.safetensors")
        return f"{c.keep}.safetensors"

    def _load(self) -> Pretrained:
        loaded = load_pretrained(self.path)
        if not isinstance(loaded.model, GPT):
            raise InputError(f"--from {self.config.from_} is not a language model; smollm2, for example, is one")
        longest = loaded.model.config.context_length
        if self.config.context > longest:
            raise InputError(f"--context must be at most {longest}, the longest context of the model")
        width = loaded.model.config.d_model
        if self.config.lora > width:
            raise InputError(f"--lora must be at most {width}, the width of the model, got {self.config.lora}")
        return loaded


def fingerprint(path: Path) -> str:
    """The SHA-256 of a model's file, or of the settings and weights in its folder.

    Raises: InputError for a file that cannot be read.
    """
    files = [path] if path.is_file() else sorted([*path.glob("config.json"), *path.glob("*.safetensors")])
    digest = hashlib.sha256()
    for file in files:
        with reading(file), open(file, "rb") as opened:
            digest.update(hashlib.file_digest(opened, "sha256").digest())
    return digest.hexdigest()


class FineTunedText(TextTask):
    """A pretrained GPT on one text. The last tenth of the text is held out."""

    defaults: ClassVar[dict[str, Any]] = {
        "vocabulary": "bpe", "context": 128, "batch": 4, "steps": 200, "learning_rate": 5e-4, "warmup": 20,
        "weight_decay": 0.0, "eval_every": 100, "save_every": 50,
    }

    def __init__(self, config: TrainConfig) -> None:
        self.start = Start(config)
        super().__init__(config)

    def _vocabulary(self, text: str) -> Vocabulary:
        return self.start.tokenizer

    def model(self, rng: np.random.Generator | None) -> GPT:
        return self.start.model(rng)

    def saved(self) -> dict[str, Any]:
        """Fingerprints of the model and the text."""
        return self.start.saved() | {"sha256": self.text_hash}

    def report(self, model: GPT, rng: np.random.Generator, workers: Workers) -> str:
        """The held-out loss before and after, and 100 tokens written by the model."""
        lines = ["held-out loss            nats per token   per character"]
        for name, which in (("before", self.start.untouched()), ("after", model)):
            losses = self.evaluate(which, workers)
            lines.append(f"  {name:<22} {losses['val_loss']:>14.3f} {losses['val_loss_per_character']:>15.3f}")
        ids = model.generate(self.vocabulary.encode("The "), 100, rng=rng, temperature=0.8, top_p=0.95)
        return "\n".join([*lines, "", "a sample:", self.vocabulary.decode(ids)])

    def write_result(self, model: GPT, directory: Path) -> str:
        return self.start.write_result(model, directory)
