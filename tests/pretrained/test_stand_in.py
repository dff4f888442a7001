"""The stand-in is a file like a real model, and it has learned its answers."""


import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.pretrained.c35a_chat import Chat
from numpy_attention.pretrained.c35b_conversation import Conversation
from numpy_attention.pretrained.shipped import STAND_IN
from tests.pretrained.make_stand_in import KNOWN, SYSTEM, make
from tests.pretrained.tiny import SPECIAL


@pytest.fixture(scope="module")
def loaded():
    return na.load_pretrained(STAND_IN)


def answer_of(model, chat, question):
    return chat.tokenizer.decode(list(Conversation(model, chat, temperature=0.0).answer(question, 60)))


def test_the_stand_in_gives_its_answers_only_with_the_correct_rotary_pairing():
    model, tokenizer = na.load_pretrained(STAND_IN)
    chat = Chat(tokenizer)
    assert {question: answer_of(model, chat, question) for question in KNOWN} == KNOWN
    for block in model.blocks:
        block.attention.rotary_pairing = "interleaved"
    assert sum(answer_of(model, chat, question) == answer for question, answer in KNOWN.items()) < 3


def test_its_tokenizer_encodes_any_text_and_its_chat_format_is_chatml(loaded, rng):
    _, tokenizer = loaded
    text = "".join(chr(i) for i in rng.integers(32, 0x3000, 200)) + " Row, row\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.id_of(token) for token in SPECIAL] == [0, 1, 2]
    assert tokenizer.labels(tokenizer.encode(" capital of France")) == [" capital", " of", " France"]
    assert tokenizer.decode(Chat(tokenizer).opening).strip() == f"system\n{SYSTEM}"
    assert tokenizer.stop == {2}
    assert not np.isin(tokenizer.encode("<|im_end|>"), range(len(SPECIAL))).any()


@pytest.mark.slow
def test_the_script_trains_a_model_with_these_answers(tmp_path):
    model, tokenizer = na.load_pretrained(make(tmp_path / "again.gguf"))
    chat = Chat(tokenizer)
    assert {question: answer_of(model, chat, question) for question in KNOWN} == KNOWN
