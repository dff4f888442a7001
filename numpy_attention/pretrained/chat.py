r"""Chapter 35, continued. A conversation as ids

A chat model was trained on conversations in a fixed format, with special tokens around each turn. This book supports
two formats. It recognizes them by the tokens in the chat template of the file:

    ChatML     <|im_start|>user\nHello<|im_end|>\n
               <|im_start|>assistant\n
    Llama 3    <|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>
               <|start_header_id|>assistant<|end_header_id|>\n\n

The template is a small program (in the language Jinja), and its author is unknown. So it is never run: this chapter
only searches it for these tokens and for the system message at its beginning.
"""

import re

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.pretrained.tokenizer import Tokenizer

# a template's default system message, in quotes; the \n before it may be two characters or one line break
SYSTEM = re.compile(r"""(['"])<\|im_start\|>system(?:\\n|\n)((?:(?!\1|<\|).)*)<\|im_end\|>""", re.DOTALL)


class Chat:
    """The format of a conversation: turns become ids for the model.

    Raises: InputError if the template has neither format, or uses a token that the tokenizer lacks.
    """

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        template = tokenizer.template or ""
        self.tokenizer = tokenizer
        if "<|im_start|>" in template:
            self.begin, self.middle, self.end, self.last = "<|im_start|>", "", "<|im_end|>", "\n"
        elif "<|start_header_id|>" in template:
            self.begin, self.middle, self.end, self.last = "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", ""
        else:
            raise InputError("the file has no chat template in a known format, ChatML or Llama 3; use sample")
        self.end_id = tokenizer.id_of(self.end)
        self.stop = frozenset({self.end_id, *tokenizer.stop})
        if system is None:  # use the message that the model was trained with
            found = SYSTEM.search(template)
            system = found[2].replace("\\n", "\n") if found else ""
        self.opening = self.turn("system", system) if system else np.zeros(0, np.int64)

    def turn(self, role: str, text: str) -> np.ndarray:
        """The ids of one turn."""
        return np.concatenate([self.opened(role, text), self.closed()])

    def opened(self, role: str, text: str = "") -> np.ndarray:
        """The beginning of a turn as ids. Role and text are encoded together: a chunk may hold parts of both."""
        encode, id_of = self.tokenizer.encode, self.tokenizer.id_of
        if self.middle:
            text = "\n\n" + text.strip()  # the template strips the text too
            return np.array([id_of(self.begin), *encode(role), id_of(self.middle), *encode(text)], dtype=np.int64)
        return np.array([id_of(self.begin), *encode(f"{role}\n{text}")], dtype=np.int64)

    def closed(self) -> np.ndarray:
        """The end of a turn as ids."""
        return np.array([self.end_id, *self.tokenizer.encode(self.last)], dtype=np.int64)
