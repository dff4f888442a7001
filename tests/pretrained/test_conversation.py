"""A long conversation: each token is run once, and the KV cache always fits the ids."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_attention.errors import InputError
from numpy_attention.layers.c17a_kv_cache import KeyValueCache
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.c35b_conversation import Conversation
from numpy_attention.pretrained.c36_load import load_pretrained
from tests.pretrained import tiny

CONTEXT = 167


@pytest.fixture(scope="module", params=["rotary", "learned"])
def begin(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Conversation]:
    settings = {"rotary": tiny.LLAMA, "learned": tiny.GPT2}[request.param]
    longer = {"rotary": "max_position_embeddings", "learned": "n_positions"}[request.param]
    model, tokenizer = load_pretrained(
        tiny.folder(settings | {longer: CONTEXT})(tmp_path_factory.mktemp("talk"), request.param)
    )
    return lambda **options: Conversation(model, Chat(tokenizer), **({"temperature": 0.0} | options))


def fresh_logits(one: Conversation, ids: list[int]) -> np.ndarray:
    return one.model.forward(np.array(ids)[None])[0][0]  # (T, V)


def assert_stored_fits(one: Conversation) -> None:
    """The KV cache equals that of a fresh forward over all stored ids."""
    past = [KeyValueCache(one.context) for _ in one.model.blocks]
    one.model.forward(np.array(one.ids[: one.stored])[None], past=past)
    for mine, fresh in zip(one.past, past, strict=True):
        for a, b in ((mine.k, fresh.k), (mine.v, fresh.v)):
            np.testing.assert_allclose(a[:, :, : one.stored], b[:, :, : one.stored], rtol=2e-5, atol=2e-5)


def test_turns_with_kv_cache_equal_one_forward_over_the_whole_conversation(begin: Callable[..., Conversation]) -> None:
    one = begin()
    for text, count in (("the user", 9), ("12 users, \u20ac", 7), ("or", 5)):
        message = list(one.answer(text, count))
        assert len(message) == count
        assert one.ids[-count:] == message
        logits = fresh_logits(one, one.ids)
        assert logits[-count - 1 : -1].argmax(axis=-1).tolist() == message
        assert one.stored == len(one.ids) - 1, "all but the newest"
        assert_stored_fits(one)
    chat = one.chat
    words = chat.tokenizer.tokenizer.decode(one.ids, skip_special_tokens=False)
    assert words.startswith("<|im_start|>system\nThe other 12 users answer.<|im_end|>\n<|im_start|>user\nthe user<")
    assert words.count("<|im_end|>\n<|im_start|>user\n") == 3
    assert words.count("<|im_end|>\n<|im_start|>assistant\n") == 3


def test_a_turn_runs_only_its_new_tokens(begin: Callable[..., Conversation], monkeypatch: pytest.MonkeyPatch) -> None:
    one = begin()
    list(one.answer("the user", 6))
    before, run = len(one.ids), []
    forward = one.model.forward

    def counted(ids: np.ndarray, **options: Any) -> Any:
        run.append(ids.shape[1])
        return forward(ids, **options)

    monkeypatch.setattr(one.model, "forward", counted)
    list(one.answer("or", 4))
    assert run == [len(one.ids) - 4 - before + 1, 1, 1, 1], "one forward for the new tokens, then one per token"


@pytest.mark.parametrize("at", [0, 1, 5])
def test_an_interrupted_forward_leaves_a_kv_cache_that_fits(
    begin: Callable[..., Conversation], monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    one = begin()
    list(one.answer("the other", 3))
    second = one.model.blocks[1]
    forward, calls = second.forward, []

    def interrupted(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) > at:
            raise KeyboardInterrupt
        return forward(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(second, "forward", interrupted)
        heard: list[int] = []
        with pytest.raises(KeyboardInterrupt):
            heard.extend(one.answer("user", 8))
    assert len(heard) == at
    assert one.past[0].length > one.past[1].length, "the first block has stored a token that the second has not"
    message = list(one.answer("12", 6))
    assert fresh_logits(one, one.ids)[-7:-1].argmax(axis=-1).tolist() == message
    assert_stored_fits(one)


def test_a_full_context_ends_the_answer_and_refuses_the_next_text(begin: Callable[..., Conversation]) -> None:
    one = begin()
    message = list(one.answer("or", 10 * CONTEXT))
    assert one.tokens_left == 0
    assert len(one.ids) == CONTEXT
    assert fresh_logits(one, one.ids)[-len(message) - 1 : -1].argmax(axis=-1).tolist() == message
    before = list(one.ids)
    with pytest.raises(InputError, match=rf"{CONTEXT} tokens and \d+ new ones are too many for a context of {CONTEXT}"):
        next(one.answer("the user", 3))
    assert one.ids == before, "the conversation is unchanged"
