"""The settings of a run: one dataclass defines the command line, the TOML keys and config.json.

    learning_rate: float = _setting(4e-3, "the peak learning rate", low=0)

    --learning-rate X     the peak learning rate (default: 0.004)       python -m numpy_attention train --help
    learning_rate = 1e-3                                                a line of a settings file
    "learning_rate": 0.001,                                             a line of config.json

A value with a wrong type or out of bounds is refused here, from every source, and the error names the option.
"""

import dataclasses
import difflib
import math
from argparse import BooleanOptionalAction
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.backend import NAMES
from numpy_attention.errors import InputError, short_repr
from numpy_attention.layers.c18_feed_forward import ACTIVATIONS
from numpy_attention.models.c21a_config import ATTENTION, NORMS
from numpy_attention.models.c23a_gpt_config import POSITIONS
from numpy_attention.training.c25_optimizers import SGD, Adam, AdamW

TASKS = ("text", "sum", "reverse", "copy", "dates", "digits", "induction", "answers", "grpo", "dpo")
OPTIMIZERS = ("adamw", "adam", "sgd")
OF_MODELS = {  # the common fields of all model configurations, and the settings for them
    "context_length": "context", "d_model": "d_model", "num_heads": "heads", "num_layers": "layers", "d_ff": "d_ff",
    "positions": "positions", "norm": "norm", "activation": "activation", "dropout": "dropout",
    "attention": "attention",
}
_KINDS = {int: ("a whole number", "N"), float: ("a number", "X"), str: ("a text", "NAME"), bool: ("true or false", "")}


def _setting(default: Any, help: str, low: float | None = None, below: float = math.inf, choices: Any = ()) -> Any:
    """A field with its help text and its allowed values: low <= value < below, or one of `choices`."""
    kind = str if default is None else type(default)
    meta = {"kind": kind, "help": help, "low": low, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class TrainConfig:
    """Every setting of a run. The settings, the text and the number of ranks determine the result; bit for bit if
    `workers` is given, since its default depends on the machine.

    Raises: InputError that names the option, for a wrong value.
    """

    task: str = _setting("text", "the task to learn", choices=TASKS)
    text: str | None = _setting(None, "a UTF-8 file to train on (default: the help topics of Python 3.11)")
    vocabulary: str = _setting("char", "the kind of tokens", choices=("char", "byte", "bpe"))
    vocab_size: int = _setting(1024, "for bpe: the number of tokens, including the 256 bytes", low=257)
    from_: str | None = _setting(None, "a model to start from: smollm2, a .gguf file, a folder; for grpo, dpo: a run")
    lora: int = _setting(0, "with --from: learn a low-rank change of each matrix (0: train all)", low=0)
    lora_alpha: float = _setting(0.0, "with --lora: alpha; the change is scaled by alpha / rank (0: 2 rank)", low=0)
    keep: str = _setting("adapter", "with --lora: the file to write at the end", choices=("adapter", "merged"))
    seed: int = _setting(0, "seed of all random numbers", low=0)
    steps: int = _setting(1200, "optimizer steps", low=1)
    batch: int = _setting(8, "examples in a step", low=1)
    accumulate: int = _setting(1, "cut each worker's part of a batch into this many shards, to save memory", low=1)
    recompute: bool = _setting(False, "store only the input of each block: little memory, a third more time")
    workers: int = _setting(0, "threads that share a batch (0: one for each core, or one if steps are short)", 0, 1025)
    backend: str = _setting("numpy", "where to compute; cupy uses a GPU", choices=NAMES)

    layers: int = _setting(4, "blocks", low=1)
    heads: int = _setting(4, "attention heads", low=1)
    d_model: int = _setting(128, "width", low=1)
    d_ff: int = _setting(0, "width of the feed-forward networks (0: 4 d_model, 8/3 if gated in a GPT)", low=0)
    context: int = _setting(256, "the most tokens that the model sees at once", low=1)
    positions: str = _setting("rotary", "the encoding of positions", choices=POSITIONS)
    norm: str = _setting("layer_norm", "normalization", choices=NORMS)
    activation: str = _setting("gelu", "the nonlinearity", choices=sorted(ACTIVATIONS))
    dropout: float = _setting(0.0, "share of activations dropped in training", low=0, below=1)
    attention: str = _setting("auto", "all weights at once, or tiles for long texts", choices=ATTENTION)

    optimizer: str = _setting("adamw", "the optimizer", choices=OPTIMIZERS)
    learning_rate: float = _setting(4e-3, "the peak learning rate", low=0)
    min_learning_rate: float = _setting(1e-4, "the learning rate at the end of the cosine", low=0)
    warmup: int = _setting(100, "steps over which the learning rate rises", low=0)
    beta1: float = _setting(0.9, "decay of Adam's mean gradient (for sgd: the momentum)", low=0, below=1)
    beta2: float = _setting(0.99, "decay of Adam's mean squared gradient", low=0, below=1)
    weight_decay: float = _setting(0.1, "weight decay of the matrices in adamw", low=0)
    clip: float = _setting(1.0, "largest joint norm of the gradients (0: no clipping)", low=0)

    log_every: int = _setting(10, "steps between lines of log.jsonl", low=1)
    eval_every: int = _setting(200, "steps between evaluations on the held-out data", low=1)
    save_every: int = _setting(200, "steps between checkpoints", low=1)
    skip_bad_steps: int = _setting(0, "skip up to this many steps with a NaN or infinity", low=0)
    patience: int = _setting(0, "stop after this many evaluations without a new best (0: never)", low=0)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            name, value, limits = option(field.name), getattr(self, field.name), field.metadata
            kind, low, below = limits["kind"], limits["low"], limits["below"]
            if value is None and field.default is None:
                continue
            if type(value) is not kind and not (kind is float and type(value) is int):
                raise InputError(f"{name} must be {_KINDS[kind][0]}, got {short_repr(value)}")
            if limits["choices"] and value not in limits["choices"]:
                raise InputError(f"{name} must be one of {', '.join(limits['choices'])}, got {short_repr(value)}")
            if low is not None and not low <= value < below:
                limit = "" if below == math.inf else f" and below {below}"
                raise InputError(f"{name} must be at least {low}{limit}, got {value}")
        if self.lora and self.from_ is None:
            raise InputError("--lora changes a pretrained model: name one with --from")
        if not self.lora and (self.lora_alpha or self.keep != "adapter"):
            raise InputError("--lora-alpha and --keep need a low-rank change: give its rank with --lora")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], source: str) -> "TrainConfig":
        """The config with these values.

        Raises: InputError for an unknown key, with the nearest setting, and for a wrong value.
        """
        values = {"from_" if key == "from" else key: value for key, value in values.items()}
        names = [field.name for field in dataclasses.fields(cls)]
        try:
            for key in values.keys() - names:
                near = "".join(f"; did you mean {name!r}?" for name in difflib.get_close_matches(key, names, 1))
                raise InputError(f"there is no setting {short_repr(key)}{near}")
            return cls(**values)
        except InputError as error:
            raise InputError(f"{source}: {error}" if source else str(error)) from None

    def model_sizes(self) -> dict[str, Any]:
        """The common sizes of all models, under the names of their configurations."""
        return {field: getattr(self, name) for field, name in OF_MODELS.items()} | {"d_ff": self.d_ff or None}

    def to_mapping(self) -> dict[str, Any]:
        """The settings as plain values for JSON."""
        return dataclasses.asdict(self)


def make_optimizer(config: TrainConfig, parameters: dict[str, np.ndarray]) -> SGD | Adam:
    """The optimizer that the configuration names."""
    c = config
    if c.optimizer == "sgd":
        return SGD(parameters, c.learning_rate, c.beta1)
    if c.optimizer == "adam":
        return Adam(parameters, c.learning_rate, c.beta1, c.beta2)
    return AdamW(parameters, c.learning_rate, c.beta1, c.beta2, weight_decay=c.weight_decay)


def command_line() -> list[tuple[str, dict[str, Any]]]:
    """A command-line option for each setting: its spelling and the keyword arguments of `add_argument`."""
    options = []
    for field in dataclasses.fields(TrainConfig):
        kind, choices, about = (field.metadata[name] for name in ("kind", "choices", "help"))
        about = about.replace("%", "%%") + (f": {', '.join(choices)}" if choices else "")
        about += "" if field.default is None or kind is bool else f" (default: {field.default})"
        how = {"type": kind, "metavar": _KINDS[kind][1]}
        how = {"action": BooleanOptionalAction} if kind is bool else how  # --recompute, and --no-recompute
        options.append((option(field.name), {"dest": field.name, "help": about, **how}))
    return options


def option(name: str) -> str:
    """The command-line spelling of a setting; the setting is called from_ because `from` is a keyword of Python."""
    return "--" + name.rstrip("_").replace("_", "-")
