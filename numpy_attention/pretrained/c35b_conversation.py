"""Chapter 35, continued. A long conversation in which the model runs each turn only once

    ids        system | user  assistant | user  assistant | user ...
    KV cache   keys and values of these tokens . . . . .  | the model runs these tokens now

The conversation is kept as ids. It is never turned into text and encoded again, so the ids always fit the KV cache
(`KeyValueCache`), and a turn costs only its own tokens. Each answer stays as the model wrote it.

The user can interrupt an answer at any moment, even in the middle of a forward, when some blocks have stored a token
and others have not. So the conversation counts the tokens that all blocks have stored. When the next turn begins, the
tokens after these are removed from the KV cache, and the interrupted turn gets its end token.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from numpy_attention.errors import InputError
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.models.c23b_generate import stream
from numpy_attention.pretrained.c35a_chat import Chat

LONGEST = 8192  # tokens: the KV cache is allocated in full at the start, and some models allow very long contexts


class Conversation:
    """A model and its conversation with a user; the options in `sampling` are passed on to `stream`."""

    def __init__(self, model: Any, chat: Chat, **sampling: Any) -> None:
        self.model, self.chat, self.sampling = model, chat, sampling
        self.context = min(model.config.context_length, LONGEST)
        self.ids: list[int] = chat.opening.tolist()
        self.closing: list[int] = []  # ids that end the previous turn
        self.past = [KeyValueCache(self.context) for _ in model.blocks]
        self.stored = 0  # the first `stored` ids are in the KV cache of every block

    @property
    def tokens_left(self) -> int:
        """The number of tokens that still fit into the context."""
        return self.context - len(self.ids)

    def answer(self, text: str, num_tokens: int) -> Iterator[int]:
        """Add the user's text, and yield the answer token by token: at most `num_tokens`, or until the context is full.

        Raises: InputError for a text that does not fit into the context. Then the conversation is unchanged.
        """
        chat = self.chat
        question = chat.turn("user", text, first=not self.closing).tolist()
        new = [*self.closing, *question, *chat.opened("assistant").tolist()]
        if len(new) >= self.tokens_left:
            sizes = f"{len(self.ids):,} tokens and {len(new):,} new ones are too many for a context of {self.context:,}"
            raise InputError(f"{sizes}, which must also hold an answer; /reset starts a new conversation")
        self.ids += new
        self.closing = chat.closed().tolist()
        for one in self.past:
            one.length = self.stored
        prompt, limit = np.array(self.ids, dtype=np.int64), min(num_tokens, self.tokens_left)
        for i in stream(self.model, prompt, limit, stop=chat.stop, past=self.past, **self.sampling):
            self.stored = len(self.ids)  # the newest token is not stored yet: the model runs it in the next step
            if i in chat.stop:
                return
            self.ids.append(i)
            yield i
