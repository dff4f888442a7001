"""Part V, appendix. The small models that come with the book

The package includes a trained model, so that a reader can generate text before training anything. It is the result of
this command:

    python -m numpy_attention train --workers 2 --out run

The model is a GPT with four blocks and d_model = 128, trained on the help topics of Python 3.11, one character per
token, for 1,200 steps. The folder `small_gpt` next to this file is that training run: its settings, its log and its
checkpoint. To shrink the checkpoint from 9.8 MB to 1.6 MB, the parameters are rounded to float16 and the moments of the
optimizer are left out. The reader can sample from the model and look inside it, but cannot resume its training.

The folder `induction` is another training run, stored in the same way. Its model is small enough to be understood:

    python -m numpy_attention train --task induction --workers 2 --out run

The tutorials about real models need a file of a hundred megabytes. If it has not been fetched, they use
`stand_in.gguf`: a llama in a GGUF file with the same names, number formats, special tokens and chat template, but with
only two blocks and d_model = 64. It has learned nine answers by heart.
"""

from pathlib import Path
from typing import Any

from numpy_attention.models.c23_gpt import GPT
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.log import read_log
from numpy_attention.training.restore import gpt_model, load_run, text_model

FOLDER = Path(__file__).with_name("small_gpt")
INDUCTION = Path(__file__).with_name("induction")
STAND_IN = Path(__file__).with_name("stand_in.gguf")
NO_MODEL_NAMED = "no model is given: this is the small GPT that comes with the book, trained on Python's help topics"


def shipped() -> tuple[GPT, Vocabulary]:
    """The trained GPT of 806,528 parameters and the vocabulary of its 103 characters.

    Source: Radford, Wu, Child, Luan, Amodei, Sutskever, Language Models are Unsupervised Multitask Learners (2019).
    """
    _, arrays, meta = load_run(FOLDER)
    return text_model(arrays, meta)


def shipped_induction() -> tuple[GPT, list[dict[str, Any]]]:
    """The GPT of two layers that continues a repeated sequence of symbols, and its training log.

    Source: Olsson et al., In-context Learning and Induction Heads (2022).
    """
    _, arrays, meta = load_run(INDUCTION)
    return gpt_model(arrays, meta), read_log(INDUCTION / "log.jsonl")
