"""dates: an encoder-decoder over characters translates "3rd of March, 1987" to "1987-03-03".

People write a date in many forms. The model reads one of eleven forms and writes the ISO form. Training covers every
form and nearly every date, but one in ten pairs of a form and a date is held out: a model can write these only if it
treats the form and the date separately. The order changes from day first to year first, and the cross-attention shows
this change.
"""

import datetime as dt
import zlib
from typing import Any, ClassVar

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.models.c24_seq2seq import Seq2Seq
from numpy_attention.training.c28_loop import Batch
from numpy_attention.training.c30_parallel import Workers
from numpy_attention.training.config import TrainConfig
from numpy_attention.training.tasks.labelled import TEST
from numpy_attention.training.tasks.translation import PAD, TranslationTask

FIRST, LAST = dt.date(1900, 1, 1).toordinal(), dt.date(2099, 12, 31).toordinal()
MONTHS = [
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
]
WEEKDAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
FORMS = (
    "{day}{th} of {month}, {year}",
    "{day} {month} {year}",
    "{month} {day}, {year}",
    "{month} {day}{th}, {year}",
    "{mon} {day}, {year}",
    "{day}-{mon}-{year}",
    "{day}.{number}.{year}",
    "{weekday}, {day} {month} {year}",
    "{weekday} the {day}{th} of {month} {year}",
    "{year}, {month} {day}",
    "on the {day}{th} of {mon} {year}",
)
START, STOP = 1, 2
SOURCE_CHARACTERS = " ,-." + "".join(sorted(set("".join([*MONTHS, *WEEKDAYS]) + "onthefstndrdth0123456789")))
TARGET_CHARACTERS = "0123456789-"
LONGEST = 36
FRESH = 1000


class DateTask(TranslationTask):
    """Dates from 1900 to 2099, written in eleven forms."""

    start_token, stop_token = START, STOP
    defaults: ClassVar[dict[str, Any]] = TranslationTask.defaults | {
        "context": LONGEST, "batch": 64, "steps": 1500, "learning_rate": 2e-3,
    }

    def __init__(self, config: TrainConfig) -> None:
        super().__init__(config)
        if config.context < LONGEST:
            raise InputError(f"--context must be at least {LONGEST}, the longest written date, got {config.context}")
        self.test = encode_dates(draw_dates(FRESH, np.random.default_rng([TEST, config.seed]), held_out=True))

    def model(self, rng: np.random.Generator | None) -> Seq2Seq:
        """A small version of the encoder-decoder of the paper; ids 0, 1, 2 are padding, start and stop."""
        sizes = {"source_vocab_size": 3 + len(SOURCE_CHARACTERS), "target_vocab_size": 3 + len(TARGET_CHARACTERS)}
        return self.build(Seq2Seq, rng, pad_token=PAD, **sizes)

    def batch(self, rng: np.random.Generator) -> Batch:
        """Pairs of form and date that are not held out."""
        return encode_dates(draw_dates(self.config.batch, rng, held_out=False))

    def description(self) -> str:
        return f"task: write dates in ISO form; {len(FORMS)} forms, 73,049 days, a tenth of the pairs held out"

    def report(self, model: Seq2Seq, rng: np.random.Generator, workers: Workers) -> str:
        """The share of exact matches on held-out pairs, and six examples."""
        exact = self.evaluate(model, workers)["val_exact"]
        pairs = draw_dates(6, rng, held_out=True)
        source_ids, _, targets = encode_dates(pairs)
        outputs = model.greedy(source_ids, START, STOP, targets.shape[1])
        lines = [f"exact matches on {FRESH:,} held-out pairs of a date and a format: {exact:.2%}", ""]
        lines += [f"  {source:<{LONGEST}} -> {spell(output)}" for (source, _), output in zip(pairs, outputs)]
        return "\n".join(lines)


def write_date(date: dt.date, form: str) -> str:
    """A date in one of the forms."""
    th = "th" if 11 <= date.day <= 13 else {1: "st", 2: "nd", 3: "rd"}.get(date.day % 10, "th")
    month, weekday = MONTHS[date.month - 1], WEEKDAYS[date.weekday()]
    return form.format(
        day=date.day, th=th, month=month, mon=month[:3], number=date.month, year=date.year, weekday=weekday
    )


def draw_dates(count: int, rng: np.random.Generator, held_out: bool) -> list[tuple[str, str]]:
    """Written dates and their ISO forms: only held-out pairs, or only training pairs."""
    pairs: list[tuple[str, str]] = []
    while len(pairs) < count:
        for day, form in zip(rng.integers(FIRST, LAST + 1, size=count), rng.integers(0, len(FORMS), size=count)):
            date = dt.date.fromordinal(int(day))
            written = write_date(date, FORMS[form])
            # every run holds out the same tenth; the text decides, since two forms write the same text in May
            if (zlib.crc32(written.encode()) % 10 == 0) == held_out:
                pairs.append((written, date.isoformat()))
    return pairs[:count]


def encode_dates(pairs: list[tuple[str, str]]) -> Batch:
    """source_ids (B, T_s) padded with 0, target_ids (B, 11) from the start token, targets (B, 11) to the stop token."""
    source_ids = np.full((len(pairs), max(len(source) for source, _ in pairs)), PAD, dtype=np.int64)
    for row, (source, _) in zip(source_ids, pairs):
        row[: len(source)] = [3 + SOURCE_CHARACTERS.index(c) for c in source]
    target = np.array([[3 + TARGET_CHARACTERS.index(c) for c in iso] for _, iso in pairs])  # (B, 10)
    start, stop = np.full_like(target[:, :1], START), np.full_like(target[:, :1], STOP)
    return source_ids, np.concatenate([start, target], axis=1), np.concatenate([target, stop], axis=1)


def spell(ids: np.ndarray) -> str:
    """The characters of an output, up to its stop token."""
    return "".join(TARGET_CHARACTERS[i - 3] for i in ids if i >= 3)
