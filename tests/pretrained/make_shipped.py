"""Write `numpy_attention/pretrained/small_gpt` or `induction` from a finished training run:

    python -m numpy_attention train --workers 2 --out RUN
    python -m tests.pretrained.make_shipped RUN small_gpt

    python -m numpy_attention train --task induction --workers 2 --out RUN
    python -m tests.pretrained.make_shipped RUN induction
"""

import shutil
import sys
from pathlib import Path

import numpy as np

from numpy_attention.files import save_arrays
from numpy_attention.pretrained.shipped import FOLDER
from numpy_attention.training import c29_checkpoint as checkpoint
from numpy_attention.training.restore import load_run

LEFT_OUT = ("format", "version")  # save_arrays writes these itself


def make(run: Path, folder: Path) -> None:
    """Copy the run without the optimizer's moments, with its parameters in float16."""
    _, arrays, meta = load_run(run)
    half = {name: array.read().astype(np.float16) for name, array in arrays.items() if name.startswith("parameters.")}
    folder.mkdir(exist_ok=True)
    meta = {key: value for key, value in meta.items() if key not in LEFT_OUT}
    save_arrays(folder / checkpoint.NAME, half, meta)
    for name in ("config.json", "log.jsonl"):
        shutil.copyfile(run / name, folder / name)


if __name__ == "__main__":
    make(Path(sys.argv[1]), FOLDER.with_name(sys.argv[2]))
