"""The plain forms: the forward of an op or layer a second time, written as simply as possible.

A backward that matches a wrong forward passes every gradient check. So a test compares the forward with its plain form,
if a file of this folder has one. A plain form takes the arguments of the op, and for a layer also `layer`; it returns
None for a variant that it does not support.
"""

import importlib
from pathlib import Path
from typing import Any

PLAIN: dict[str, Any] = {}
for file in sorted(Path(__file__).parent.glob("[!_]*.py")):
    PLAIN |= importlib.import_module(f"{__name__}.{file.stem}").PLAIN
