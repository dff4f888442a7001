r"""Chapter 35, continued. A conversation as ids

A chat model has been trained on conversations written in one way, with special tokens around each turn. Two ways are
known here, by the tokens that the file's own template names:

    ChatML     <|im_start|>user\nHello<|im_end|>\n
               <|im_start|>assistant\n
    Llama 3    <|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>
               <|start_header_id|>assistant<|end_header_id|>\n\n

The template itself is a program in a language of its own and comes from a stranger: it is read for these names and for
the system message it begins with, and never run.
"""

from __future__ import annotations

import re

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.pretrained.tokenizer import Tokenizer

# the message that a template writes out where none is given: in quotes, after \n as two letters or as one
SYSTEM = re.compile(r"""(['"])<\|im_start\|>system(?:\\n|\n)((?:(?!\1|<\|).)*)<\|im_end\|>""", re.DOTALL)


class Chat:
    """A conversation: what has been said, as ids for the model.

    Raises: InputError where the tokenizer's template is of neither kind, or names a token that it has not.
    """

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        template = tokenizer.template or ""
        self.tokenizer = tokenizer
        if "<|im_start|>" in template:
            self.begin, self.middle, self.end, self.last = "<|im_start|>", "", "<|im_end|>", "\n"
        elif "<|start_header_id|>" in template:
            self.begin, self.middle, self.end, self.last = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", ""
        else:
            raise InputError("the file tells of no conversation that is known here, ChatML or Llama 3; use sample")
        self.end_id = tokenizer.id_of(self.end)
        self.stop = frozenset({self.end_id, *tokenizer.stop})
        if system is None:  # as the model was trained
            found = SYSTEM.search(template)
            system = found[2].replace("\\n", "\n") if found else ""
        self.opening = self.turn("system", system) if system else np.zeros(0, np.int64)

    def turn(self, role: str, text: str) -> np.ndarray:
        """The ids of one turn."""
        return np.concatenate([self.opened(role, text), self.closed()])

    def opened(self, role: str, text: str = "") -> np.ndarray:
        """The ids with which a turn begins, up to its text; encoded in one, for a chunk may cross the border."""
        encode, id_of = self.tokenizer.encode, self.tokenizer.id_of
        if self.middle:
            text = "\n\n" + text.strip()  # so its template does
            return np.array([id_of(self.begin), *encode(role), id_of(self.middle), *encode(text)], dtype=np.int64)
        return np.array([id_of(self.begin), *encode(f"{role}\n{text}")], dtype=np.int64)

    def closed(self) -> np.ndarray:
        """The ids with which a turn ends."""
        return np.array([self.end_id, *self.tokenizer.encode(self.last)], dtype=np.int64)
