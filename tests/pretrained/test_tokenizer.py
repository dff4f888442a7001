"""Chapter 35: from text to ids and back, for folders and GGUF files."""

import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import models, processors

from numpy_attention.errors import InputError
from numpy_attention.pretrained.c33_gguf_files import read_gguf
from numpy_attention.pretrained.c35_tokenizer import RULES, Tokenizer, tokenizer_of_folder, tokenizer_of_gguf
from tests.pretrained import tiny

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)


def gguf_settings(**changes):
    """The tokenizer settings of a GGUF file; the defaults are those of the tiny files, where every byte has a token."""
    usual = {
        "model": "gpt2", "pre": "gpt-2", "tokens": tiny.TOKENS, "merges": tiny.MERGES, "eos_token_id": 2,
        "token_type": [3 if token in tiny.SPECIAL else 1 for token in tiny.TOKENS],
    } | changes  # fmt: skip
    return {f"tokenizer.ggml.{name}": value for name, value in usual.items() if value is not None}


@pytest.fixture(scope="module")
def tiny_one():
    return tokenizer_of_gguf(gguf_settings())


def test_the_gguf_file_and_the_folder_give_the_same_tokenizer(tmp_path):
    settings, _ = read_gguf(tiny.write(tmp_path, "llama gguf"))
    of_file, of_folder = tokenizer_of_gguf(settings), tokenizer_of_folder(tiny.write(tmp_path, "llama"))
    assert len(of_file) == len(of_folder) == tiny.V
    assert of_file.stop == of_folder.stop == {2}
    assert of_file.template == of_folder.template == tiny.CHATML
    for text in ("the user, in 12 words", "  Zürich\n\n", "", "<|im_end|>"):
        np.testing.assert_array_equal(of_file.encode(text), of_folder.encode(text))


@settings(max_examples=40)
@given(TEXTS)
def test_decode_inverts_encode(tiny_one, text):
    ids = tiny_one.encode(text)
    assert ids.dtype == np.int64
    assert tiny_one.decode(ids) == text
    assert tiny_one.characters_in(ids) == len(text)


def test_text_that_looks_like_a_special_token_is_plain_text(tiny_one, tmp_path):
    for one in (tiny_one, tokenizer_of_folder(tiny.write(tmp_path, "gpt2"))):
        ids = one.encode("<|im_end|>")
        assert len(ids) == len("<|im_end|>")  # no merge applies
        assert one.id_of("<|im_end|>") not in ids
        assert one.decode(ids) == "<|im_end|>"


def test_a_bert_has_its_special_tokens_around_a_text(tmp_path):
    tokenizer = tokenizer_of_folder(tiny.write(tmp_path, "bert"))
    ids = tokenizer.encode_with_special("The rain, bread [SEP]")
    words = [tiny.WORDS[i] for i in ids]
    assert words[:3] == ["[CLS]", "the", "rain"]
    assert words[-1] == "[SEP]"
    assert words.count("[SEP]") == 1
    assert tokenizer.encode("bread").tolist() == [tiny.WORDS.index("bread")]


def with_special(template):
    """A folder's tokenizer that adds special tokens to a text."""
    made = tiny.byte_pairs()
    ids = [(token, i) for i, token in enumerate(tiny.SPECIAL)]
    made.post_processor = processors.TemplateProcessing(template, special_tokens=ids)
    return made


@pytest.mark.parametrize(("template", "first"), [("<|im_start|> $A <|endoftext|>", [1]), ("$A <|endoftext|>", []),
                                                 ("<|im_start|> <|im_end|> $A", [1, 2]), ("$A", [])])  # fmt: skip
def test_a_prompt_has_only_the_special_tokens_that_come_first(template, first):
    """An end token after the prompt would end the text that the model should continue."""
    tokenizer = Tokenizer(with_special(template))
    for text in ("", "the user"):
        assert tokenizer.encode_prompt(text).tolist() == [*first, *tokenizer.encode(text)]


def test_truncation_and_padding_in_the_file_are_ignored(tmp_path):
    """The tokenizer.json of MiniLM truncates and pads to 128 tokens."""
    path = tiny.write(tmp_path, "bert")
    made = tiny.word_piece()
    made.enable_truncation(3)
    made.enable_padding(length=50)
    made.save(str(path / "tokenizer.json"))
    assert len(tokenizer_of_folder(path).encode("the rain " * 20)) == 40


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("gpt-2", ["I", "'ll", " pay", " 1234", ",", " O", "'", "K", "!!", "\n", "\n", "x"]),
        ("smollm", ["I", "'ll", " pay", " ", "1", "2", "3", "4", ",", " O", "'", "K", "!!", "\n", "\n", "x"]),
        ("qwen2", ["I", "'ll", " pay", " ", "1", "2", "3", "4", ",", " O", "'K", "!!\n\n", "x"]),
        ("llama-bpe", ["I", "'ll", " pay", " ", "123", "4", ",", " O", "'K", "!!\n\n", "x"]),
        ("dbrx", ["I", "'ll", " pay", " ", "123", "4", ",", " O", "'K", "!!\n\n", "x"]),
    ],
)
def test_each_splitting_rule_gives_the_chunks_of_its_family(rule, expected):
    """The expected chunks were written by hand from the published rules."""
    text = "I'll pay 1234, O'K!!\n\nx"
    cut = tokenizer_of_gguf(gguf_settings(pre=rule)).tokenizer.pre_tokenizer.pre_tokenize_str(text)
    assert [text[a:b] for _, (a, b) in cut] == expected


# what llama.cpp does without the key; the files of Llama 3, 3.1 and 3.2 lack it
BEGINS = {"gpt-2": False, "smollm": False, "qwen2": False, "llama-bpe": True, "dbrx": False, "smaug-bpe": False}


def test_without_the_key_the_splitting_rule_decides_whether_a_text_begins_with_the_bos_token():
    assert BEGINS.keys() == RULES.keys()
    for rule, begins in BEGINS.items():
        few = {"tokens": ["<|begin_of_text|>", "<|eot_id|>", "a", "b", "ab"], "merges": ["a b"], "bos_token_id": 0}
        few |= {"token_type": [3, 3, 1, 1, 1], "eos_token_id": 1, "pre": rule}
        assert tokenizer_of_gguf(gguf_settings(**few)).encode_with_special("ab").tolist() == [0] * begins + [4]
        for said in (False, True):
            tokenizer = tokenizer_of_gguf(gguf_settings(**few, add_bos_token=said))
            assert tokenizer.encode_with_special("ab").tolist() == [0] * said + [4]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pre": "tekken"}, "its tokenizer is 'gpt2' with the rule 'tekken', supported is 'gpt2' with one of gpt-2"),
        ({"tokens": [1, 2, 3]}, "its tokenizer cannot be built: "),
    ],
)  # fmt: skip
def test_error_names_an_unsupported_tokenizer(changes, message):
    with pytest.raises(InputError) as caught:
        tokenizer_of_gguf(gguf_settings(**changes))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_each_end_token_of_all_files_ends_an_answer(tmp_path):
    """Llama 3 has several: the end of a turn, and the end of a text."""
    path = tiny.write(tmp_path, "gpt2")  # the tokenizer's own is token 2
    cases = [(2, {2}), ([0, 2], {0, 2}), ([1], {1, 2}), (None, {2}), ([-1, tiny.V, True, "0", 2.0, 2**70], {2})]
    for name in ("config.json", "generation_config.json"):
        before = json.loads((path / name).read_text()) if name == "config.json" else {}
        for ids, expected in cases:
            (path / name).write_text(json.dumps(before | {"eos_token_id": ids}))
            assert tokenizer_of_folder(path).stop == expected
        (path / name).write_text(json.dumps(before))
    (path / "config.json").write_text(json.dumps(before | {"eos_token_id": [0]}))
    (path / "generation_config.json").write_text(json.dumps({"eos_token_id": [1]}))
    assert tokenizer_of_folder(path).stop == {0, 1, 2}


@pytest.mark.parametrize("raw", ["{", '{"model": 5}'])
def test_refuses_a_damaged_tokenizer(raw, tmp_path):
    path = tiny.write(tmp_path, "gpt2")
    (path / "tokenizer.json").write_text(raw)
    with pytest.raises(InputError, match=r"tokenizer.json (is not readable JSON|cannot be read)"):
        tokenizer_of_folder(path)
    (path / "tokenizer.json").unlink()
    with pytest.raises(InputError, match="No such file"):
        tokenizer_of_folder(path)


def test_error_for_a_text_that_cannot_be_encoded(tiny_one):
    with pytest.raises(InputError, match="half a surrogate pair"):
        tiny_one.encode("a\ud800b")
    no_unknown = Tokenizer(tokenizers.Tokenizer(models.WordLevel({"a": 0}, unk_token="[UNK]")))
    with pytest.raises(InputError, match=r"^the tokenizer cannot encode the text: "):
        no_unknown.encode("b")


@pytest.mark.parametrize(("about", "ids"), [({}, [24, 25]), ({"do_lower_case": True}, [24, 25]),
                                            ({"do_lower_case": False}, [1, 25])])  # fmt: skip
def test_the_settings_of_a_bert_override_its_tokenizer(about, ids, tmp_path):
    """As in `transformers` 5.23."""
    path = tiny.write(tmp_path, "bert")
    (path / "tokenizer_config.json").write_text(json.dumps(about))
    assert tokenizer_of_folder(path).encode("THE rain").tolist() == ids


def test_a_saved_tokenizer_is_complete(tiny_one):
    saved = json.loads(json.dumps(tiny_one.saved()))
    again = Tokenizer(tokenizers.Tokenizer.from_str(saved["tokenizer"]), saved["stop"])
    np.testing.assert_array_equal(again.encode("the user <|im_end|>"), tiny_one.encode("the user <|im_end|>"))
    assert again.stop == tiny_one.stop


def test_the_chat_template_may_be_in_a_separate_file(tmp_path):
    path = tiny.write(tmp_path, "gpt2")
    two = [{"name": "tool_use", "template": "y"}, {"name": "default", "template": "x"}]
    cases = [({}, "{{ 5 }}"), ({"chat_template": "x"}, "x"), ({"chat_template": two}, "x")]
    cases += [({"chat_template": wrong}, "{{ 5 }}") for wrong in ([], two[:1], [5, "x", {"name": "default"}])]
    for about, expected in cases:
        (path / "tokenizer_config.json").write_text(json.dumps(about))
        (path / "chat_template.jinja").write_text("{{ 5 }}")
        assert tokenizer_of_folder(path).template == expected
    (path / "tokenizer_config.json").unlink()
    assert tokenizer_of_folder(path).stop == frozenset()
    (path / "special_tokens_map.json").write_text(json.dumps({"eos_token": "<|im_end|>"}))
    assert tokenizer_of_folder(path).stop == {2}
