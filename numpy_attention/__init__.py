"""How attention really works, gradient by gradient: a book you can run.

    >>> import numpy as np
    >>> import numpy_attention as na
    >>> q, k, v = np.random.default_rng(0).normal(size=(3, 5, 4))
    >>> y, cache = na.scaled_dot_product_attention(q, k, v, mask=na.causal_mask(5))
    >>> dq, dk, dv, _ = na.scaled_dot_product_attention_backward(y, cache)

The reading order. Each chapter is a file with its number in its name: Chapter 3 is `ops/c03_softmax.py`. A letter marks
the continuations and appendices of a chapter: `ops/c01a_sums.py`. The docstring at the top of a file derives what the
code below computes, and `help(inspect.getmodule(na.softmax))` shows the chapter of a function:

Part I     ops         1 linear          2 embedding       3 softmax          4 masks           5 dropout
                       6 attention       7 heads           8 positions        9 normalization  10 activations
                      11 losses         12 tiled_attention
Part II    layers     13 layer          14 linear         15 embedding       16 normalization
                      17 multi_head_attention             18 feed_forward    19 residual       20 block
Part III   models     21 stack          22 sequence_classifier               23 gpt            24 seq2seq
Part IV    training   25 optimizers     26 schedules      27 data            28 loop
                      29 checkpoint     30 parallel      31 mpi              32 trainer
Part V     pretrained 33 gguf_files     34 names          35 tokenizer      36 load
                      37 low_rank
Part VI    inside     38 edits         39 heads          40 lens           41 attribution
Part VII   recent     42 recurrence     43 chunks        44 convolution     45 latent_attention
                      46 scores         47 rotary_scaling                   48 recent_attention
                      49 recent_gpt
Part VIII  beyond     50 preferences    51 policy        52 router        53 experts       54 experts_gpt
                      55 muon           56 straight_through
Checking   gradcheck  complex steps and numerical differences, also for your own functions
           tutor      a page for each chapter: checks, known mistakes, exercises
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if find_spec("numpy") is None and sys.argv[:1] == ["-m"]:  # python -m numpy_attention: one line, no traceback
    venv = sys.prefix != sys.base_prefix
    sys.exit("numpy-attention: NumPy is not installed; install it with: " + (
        f"{sys.orig_argv[0]} -m pip install numpy" if venv else
        f"{sys.orig_argv[0]} -m venv .venv && .venv/bin/pip install numpy; then run .venv/bin/python -m numpy_attention"
    ))

from numpy_attention import beyond, layers, models, ops, recent, training
from numpy_attention.beyond import *
from numpy_attention.layers import *
from numpy_attention.models import *
from numpy_attention.ops import *
from numpy_attention.recent import *
from numpy_attention.training import *

if TYPE_CHECKING:
    from numpy_attention import gradcheck as gradcheck
    from numpy_attention import inside as inside
    from numpy_attention.app import plots as plots
    from numpy_attention.pretrained.c36_load import load_pretrained
    from numpy_attention.pretrained.c37_low_rank import LowRank, add_low_rank, merge_low_rank
    from numpy_attention.pretrained.safetensors_files import export_safetensors, import_safetensors
    from numpy_attention.tutor.notebook import grade
    from numpy_attention.tutor.reference import reference_case

__version__ = "0.1.0"
__all__ = ["gradcheck", "grade", "inside", "plots", "load_pretrained", "export_safetensors", "import_safetensors"]
__all__ += ["LowRank", "add_low_rank", "merge_low_rank", "reference_case"]
__all__ += ops.__all__ + layers.__all__ + models.__all__ + training.__all__ + recent.__all__ + beyond.__all__


def __getattr__(name: str) -> object:
    """Import some modules only at their first use, so `import numpy_attention` stays fast."""
    modules = {
        "gradcheck": "gradcheck", "grade": "tutor.notebook", "inside": "inside", "plots": "app.plots",
        "load_pretrained": "pretrained.c36_load", "reference_case": "tutor.reference",
        **dict.fromkeys(("export_safetensors", "import_safetensors"), "pretrained.safetensors_files"),
        **dict.fromkeys(("LowRank", "add_low_rank", "merge_low_rank"), "pretrained.c37_low_rank"),
    }
    if name not in modules:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(f"{__name__}.{modules[name]}")
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
