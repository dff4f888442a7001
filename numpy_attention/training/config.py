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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from numpy_attention.backend import NAMES
from numpy_attention.errors import InputError, short_repr
from numpy_attention.layers.feed_forward import ACTIVATIONS
from numpy_attention.models.config import ATTENTION, NORMS
from numpy_attention.models.gpt_config import POSITIONS
from numpy_attention.training.optimizers import SGD, Adam, AdamW, Helpers

VOCABULARIES = ("char", "byte", "bpe")
TASKS = ("text", "sum", "reverse", "copy", "dates", "digits", "induction")
OPTIMIZERS = ("adamw", "adam", "sgd")
KEEP = ("adapter", "merged")
OF_MODELS = {  # the common fields of all model configurations, and the settings for them
    "context_length": "context", "d_model": "d_model", "num_heads": "heads", "num_layers": "layers", "d_ff": "d_ff",
    "positions": "positions", "norm": "norm", "activation": "activation", "dropout": "dropout",
    "attention": "attention",
}
_NAMES = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def _setting(default: Any, help: str, low: float | None = None, below: float | None = None, choices: Any = None) -> Any:
    """A field with its help text and its allowed values: low <= value < below, or one of `choices`."""
    meta = {"help": help, "low": low, "below": below, "choices": choices}
    return dataclasses.field(default=default, metadata=meta)


@dataclass(frozen=True)
class TrainConfig:
    """Every setting of a run. The settings, the text and the number of ranks determine the result; bit for bit if
    `workers` is given, since its default depends on the machine.

    Raises: InputError that names the option, for a wrong value.
    """

    task: str = _setting("text", "the task to learn", choices=TASKS)
    text: str | None = _setting(None, "a UTF-8 file to train on (default: the help topics of Python 3.11)")
    vocabulary: str = _setting("char", "the kind of tokens", choices=VOCABULARIES)
    vocab_size: int = _setting(1024, "for bpe: the number of tokens, including the 256 bytes", low=257)
    from_: str | None = _setting(None, "a pretrained model to start from: smollm2, a .gguf file, or a folder")
    lora: int = _setting(0, "with --from: learn a low-rank change of each matrix (0: train all)", low=0)
    lora_alpha: float = _setting(0.0, "with --lora: alpha; the change is scaled by alpha / rank (0: 2 rank)", low=0)
    keep: str = _setting("adapter", "with --lora: the file to write at the end", choices=KEEP)
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

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            _check(field, getattr(self, field.name))
        if self.lora and self.from_ is None:
            raise InputError("--lora changes a pretrained model: name one with --from")
        for name, given in (("--lora-alpha", self.lora_alpha != 0.0), ("--keep", self.keep != "adapter")):
            if given and not self.lora:
                raise InputError(f"{name} needs a low-rank change: give its rank with --lora")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any], source: str) -> "TrainConfig":
        """The config with these values.

        Raises: InputError for an unknown key, with the nearest setting, and for a wrong value.
        """
        names = [field.name for field in dataclasses.fields(cls)]
        values = {"from_" if key == "from" else key: value for key, value in values.items()}
        for key in values:
            if key not in names:
                raise InputError(f"{source}: there is no setting {short_repr(key)}{_nearest(key, names)}")
        try:
            return cls(**values)
        except InputError as error:
            raise InputError(f"{source}: {error}" if source else str(error)) from None

    def model_sizes(self) -> dict[str, Any]:
        """The common sizes of all models, under the names of their configurations."""
        return {field: getattr(self, name) for field, name in OF_MODELS.items()} | {"d_ff": self.d_ff or None}

    def to_mapping(self) -> dict[str, Any]:
        """The settings as plain values for JSON."""
        return dataclasses.asdict(self)


def make_optimizer(config: TrainConfig, parameters: dict[str, np.ndarray], workers: Helpers | None) -> SGD | Adam:
    """The optimizer that the configuration names."""
    c = config
    if c.optimizer == "sgd":
        return SGD(parameters, c.learning_rate, c.beta1)
    if c.optimizer == "adam":
        return Adam(parameters, c.learning_rate, c.beta1, c.beta2, workers=workers)
    return AdamW(parameters, c.learning_rate, c.beta1, c.beta2, weight_decay=c.weight_decay, workers=workers)


def command_line() -> list[tuple[str, dict[str, Any]]]:
    """A command-line option for each setting: its spelling and the keyword arguments of `add_argument`."""
    options = []
    for field in dataclasses.fields(TrainConfig):
        kind, choices = value_type(field), field.metadata["choices"]
        about = field.metadata["help"].replace("%", "%%") + (f": {', '.join(choices)}" if choices else "")
        if kind is bool:  # --recompute, and --no-recompute
            options.append((option(field.name), {"dest": field.name, "action": BooleanOptionalAction, "help": about}))
            continue
        about += "" if field.default is None else f" (default: {field.default})"
        metavar = {int: "N", float: "X", str: "NAME"}[kind]
        options.append((option(field.name), {"dest": field.name, "type": kind, "metavar": metavar, "help": about}))
    return options


def value_type(field: "dataclasses.Field[Any]") -> type:
    """The type of the default: int, float, str or bool; str if the default is None."""
    return str if field.default is None else type(field.default)


def _check(field: "dataclasses.Field[Any]", value: Any) -> None:
    name, limits, kind = option(field.name), field.metadata, value_type(field)
    if value is None and field.default is None:
        return
    allowed = (int, float) if kind is float else kind
    if not isinstance(value, allowed) or isinstance(value, bool) != (kind is bool):
        raise InputError(f"{name} must be {_NAMES[kind]}, got {short_repr(value)}")
    if value == "":
        raise InputError(f"{name} must be a name, got ''; is a shell variable unset?")
    if limits["choices"] is not None and value not in limits["choices"]:
        hint = _nearest(str(value), limits["choices"])
        raise InputError(f"{name} must be one of {', '.join(limits['choices'])}, got {short_repr(value)}{hint}")
    number: Any = value
    low, below = limits["low"], limits["below"]
    if low is not None and not (low <= number < (math.inf if below is None else below)):
        upper = "" if below is None else f" and below {below}"
        raise InputError(f"{name} must be at least {low}{upper}, got {value}")


def _nearest(word: str, known: Sequence[str]) -> str:
    near = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def option(name: str) -> str:
    """The command-line spelling of a setting; the setting is called from_ because `from` is a keyword of Python."""
    return "--" + name.rstrip("_").replace("_", "-")
