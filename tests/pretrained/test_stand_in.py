"""The stand-in is a file like a real model, and it has learned its answers."""

import collections

import numpy as np
import pytest

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.pretrained.chat import Chat
from numpy_attention.pretrained.conversation import Conversation
from numpy_attention.pretrained.gguf_files import read_gguf
from numpy_attention.pretrained.names import LLAMA, their_name
from numpy_attention.pretrained.stand_in import KNOWN, SPECIAL, SYSTEM, write_stand_in
from tests.pretrained.absent import without


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return write_stand_in(tmp_path_factory.mktemp("stand-in") / "stand-in.gguf")


@pytest.fixture
def loaded(path):
    return na.load_pretrained(path)


def answer_of(model, chat, question):
    return chat.tokenizer.decode(list(Conversation(model, chat, temperature=0.0).answer(question, 60)))


@pytest.mark.slow
def test_the_stand_in_gives_its_answers_only_with_the_correct_rotary_pairing(loaded):
    model, tokenizer = loaded
    chat = Chat(tokenizer)
    assert {question: answer_of(model, chat, question) for question in KNOWN} == KNOWN
    for block in model.blocks:
        block.attention.rotary_pairing = "interleaved"
    assert sum(answer_of(model, chat, question) == answer for question, answer in KNOWN.items()) < 3


@pytest.mark.slow
def test_the_stand_in_has_the_names_kinds_and_settings_of_a_real_file(path, loaded):
    settings, tensors = read_gguf(path)
    assert {their_name(name, LLAMA, gguf=True) for name in loaded.model.parameters()} == set(tensors)
    assert collections.Counter(tensor.kind for tensor in tensors.values()) == {"Q8_0": 1, "Q4_1": 14, "F32": 5}
    c = loaded.model.config
    assert (c.d_model, c.num_layers, c.num_heads, c.num_kv_heads, c.d_ff) == (64, 2, 4, 2, 160)
    assert (c.positions, c.norm, c.activation, c.bias, c.tie_weights) == ("rotary", "rms_norm", "swiglu", False, True)
    assert settings["llama.rope.freq_base"] == c.rotary_base == 1e5
    assert path.stat().st_size < 100_000


@pytest.mark.slow
def test_the_tokenizer_encodes_any_text_and_the_chat_format_is_chatml(loaded, rng):
    _, tokenizer = loaded
    text = "".join(chr(i) for i in rng.integers(32, 0x3000, 200)) + " Row, row\n"
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [tokenizer.id_of(token) for token in SPECIAL] == [0, 1, 2]
    assert tokenizer.labels(tokenizer.encode(" capital of France")) == [" capital", " of", " France"]
    assert tokenizer.decode(Chat(tokenizer).opening).strip() == f"system\n{SYSTEM}"
    assert tokenizer.stop == {2}
    assert not np.isin(tokenizer.encode("<|im_end|>"), range(len(SPECIAL))).any()


@pytest.mark.parametrize("package", ["gguf", "tokenizers"])
def test_error_without_a_package_says_what_to_install(package, tmp_path, monkeypatch):
    without(monkeypatch, package)
    with pytest.raises(InputError, match=f"pip install {package}"):
        write_stand_in(tmp_path / "stand-in.gguf")
    assert not list(tmp_path.iterdir())
