r"""Chapter 35, continued. A conversation as ids

A chat model was trained on conversations in a fixed format, with special tokens around each turn. This book supports
three formats. It recognizes them by the tokens in the chat template of the file:

    ChatML     <|im_start|>user\nHello<|im_end|>\n
               <|im_start|>assistant\n
    Llama 3    <|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>
               <|start_header_id|>assistant<|end_header_id|>\n\n
    Gemma      <start_of_turn>user\nHello<end_of_turn>\n
               <start_of_turn>model\n

Gemma has no turn for the system message: the message comes before the first question, in the same turn.

The template is a small program (in the language Jinja), and its author is unknown. So it is never run: this chapter
only searches it for these tokens and for the system message at its beginning. It leaves out everything else that a
template may write: a date, a list of tools, or the beginning of a thought. Give this text as the system message.
"""

import re
from typing import NamedTuple

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c35_tokenizer import Tokenizer

# a template's default system message, in quotes; the \n before it may be two characters or one line break
SYSTEM = re.compile(r"""(['"])<\|im_start\|>system(?:\\n|\n)((?:(?!\1|<\|).)*)<\|im_end\|>""", re.DOTALL)


class Format(NamedTuple):
    """What a template writes around the role and the text of a turn."""

    begin: str
    middle: str  # a special token, or "" for a line break
    end: str
    last: str  # after the end
    strips: bool = True  # white space around a text is removed
    assistant: str = "assistant"  # the role of answers


FORMATS = (
    Format("<|im_start|>", "", "<|im_end|>", "\n", strips=False),
    Format("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", ""),
    Format("<start_of_turn>", "", "<end_of_turn>", "\n", assistant="model"),
)


class Chat:
    """The format of a conversation: turns become ids for the model.

    Raises: InputError if the template has no known format, or uses a token that the tokenizer lacks.
    """

    def __init__(self, tokenizer: Tokenizer, system: str | None = None) -> None:
        template = tokenizer.template or ""
        known = [one for one in FORMATS if one.begin in template]
        if not known:
            raise InputError("the file has no chat template in a known format, ChatML, Llama 3 or Gemma; use sample")
        self.tokenizer, self.format = tokenizer, known[0]
        self.end_id = tokenizer.id_of(self.format.end)
        self.stop = frozenset({self.end_id, *tokenizer.stop})
        if system is None:  # use the message that the model was trained with
            found = SYSTEM.search(template)
            system = found[2].replace("\\n", "\n") if found else ""
        self.before, self.opening = "", tokenizer.encode_prompt("")  # of the first question, and of the conversation
        if not len(self.opening) and "bos_token" in template and tokenizer.bos is not None:
            self.opening = np.array([tokenizer.bos])
        if system and self.format.assistant == "model":
            self.before = f"{system}\n\n"
        elif system:
            self.opening = np.concatenate([self.opening, self.turn("system", system)])

    def turn(self, role: str, text: str, first: bool = False) -> np.ndarray:
        """The ids of one turn; `first` is for the first question."""
        return np.concatenate([self.opened(role, text, first), self.closed()])

    def opened(self, role: str, text: str = "", first: bool = False) -> np.ndarray:
        """The beginning of a turn as ids. Role and text are encoded together: a chunk may hold parts of both."""
        form, encode, id_of = self.format, self.tokenizer.encode, self.tokenizer.id_of
        role = form.assistant if role == "assistant" else role
        text = text.strip() if form.strips else text
        text = self.before + text if first else text
        if form.middle:
            return np.array([id_of(form.begin), *encode(role), id_of(form.middle), *encode(f"\n\n{text}")], np.int64)
        return np.array([id_of(form.begin), *encode(f"{role}\n{text}")], dtype=np.int64)

    def closed(self) -> np.ndarray:
        """The end of a turn as ids."""
        return np.array([self.end_id, *self.tokenizer.encode(self.format.last)], dtype=np.int64)
