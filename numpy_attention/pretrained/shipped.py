"""Part V, appendix. The small GPTs that come with the book

So that something speaks before anything is trained, the package carries what its own first command writes:

    python -m numpy_attention train --workers 2 --out run

a GPT of four blocks of 128, taught the help topics of Python 3.11 by character in 1,200 steps. The folder `small_gpt`
beside this file is that run: its settings, its log, and its checkpoint, whose parameters are rounded to float16 and
whose moments of the optimizer are left out, so that 9.8 MB become 1.6. It can be sampled and looked into like any run,
but cannot go on training.

The folder `induction` is another run, kept in the same way, which is small enough to be understood:

    python -m numpy_attention train --task induction --workers 2 --out run
"""

from pathlib import Path
from typing import Any

from numpy_attention.models.gpt import GPT
from numpy_attention.runs.log import read_log
from numpy_attention.runs.restore import gpt_model, load_run, text_model
from numpy_attention.training.data import Vocabulary

FOLDER = Path(__file__).with_name("small_gpt")
INDUCTION = Path(__file__).with_name("induction")
NO_MODEL_NAMED = "no model is named: this is the small GPT that comes with the book, trained on Python's help topics"


def shipped() -> tuple[GPT, Vocabulary]:
    """The trained GPT of 806,528 parameters and the vocabulary of its 103 characters.

    Source: Radford, Wu, Child, Luan, Amodei, Sutskever, Language Models are Unsupervised Multitask Learners (2019).
    """
    _, arrays, meta = load_run(FOLDER)
    return text_model(arrays, meta)


def shipped_induction() -> tuple[GPT, list[dict[str, Any]]]:
    """The GPT of two layers that goes on with a piece of symbols when it comes again, and the log of its training.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    _, arrays, meta = load_run(INDUCTION)
    return gpt_model(arrays, meta), read_log(INDUCTION / "log.jsonl")
