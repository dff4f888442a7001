"""Chapter 35, continued. A conversation that goes on, each turn run once

    ids       system | user  assistant | user  assistant | user ...
    stored    keys and values of these . . . . . . . . . | these are run

What has been said stays as ids, never as text that would be encoded anew, so the stored keys and values
(`KeyValueCache`) go on fitting it, and a turn costs its own tokens alone.

An answer may be broken off anywhere, even in the midst of a forward, when some blocks have stored a token and others
not. So it is noted how many tokens all blocks have stored, and what lies behind them is forgotten when the next turn
begins. The turn that was broken off is closed then as if its speaker had come to the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.layers.kv_cache import KeyValueCache
from numpy_attention.models.generate import LanguageModel, stream
from numpy_attention.pretrained.chat import Chat

LONGEST = 8192  # tokens: the room for keys and values is taken at once, and some models could read very many


class Conversation:
    """A model, and what it and its user have said to each other; `sampling` goes to `stream`."""

    def __init__(self, model: LanguageModel, chat: Chat, **sampling: Any) -> None:
        self.model, self.chat, self.sampling = model, chat, sampling
        self.context = min(model.config.context_length, LONGEST)
        self.ids: list[int] = [*chat.tokenizer.encode_with_special("").tolist(), *chat.opening.tolist()]
        self.closing: list[int] = []  # what ends the turn before the next one
        self.past = [KeyValueCache(self.context) for _ in model.blocks]
        self.stored = 0  # the first so many of the ids are stored, in every block

    @property
    def tokens_left(self) -> int:
        """How many more tokens the context holds."""
        return self.context - len(self.ids)

    def answer(self, text: str, num_tokens: int) -> Iterator[int]:
        """Say something, and hear the answer token by token: up to num_tokens, or what the context holds.

        Raises: InputError for a text that the context does not hold; nothing has been said then.
        """
        chat = self.chat
        new = [*self.closing, *chat.turn("user", text).tolist(), *chat.opened("assistant").tolist()]
        if len(new) >= self.tokens_left:
            said = f"{len(self.ids):,} tokens and these {len(new):,} are too many for a context of {self.context:,}"
            raise InputError(f"{said}, which must hold an answer too; /reset forgets what was said")
        self.ids += new
        self.closing = chat.closed().tolist()
        for one in self.past:
            one.length = self.stored
        prompt, limit = np.array(self.ids, dtype=np.int64), min(num_tokens, self.tokens_left)
        for i in stream(self.model, prompt, limit, stop=chat.stop, past=self.past, **self.sampling):
            self.stored = len(self.ids)  # the newest token is run when another one is asked for
            if i in chat.stop:
                return
            self.ids.append(i)
            yield i
