"""Chapter 35, appendix: a small tokenizer file cannot make a short text very long, and does not fill the memory."""

import json
import os
import re
import string

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors

import numpy_attention as na
from numpy_attention.errors import InputError
from numpy_attention.pretrained import growth
from numpy_attention.pretrained.growth import check_file, check_growth
from numpy_attention.pretrained.tokenizer import Tokenizer, tokenizer_of_folder, tokenizer_of_gguf
from tests.app.commands import refused
from tests.pretrained import tiny
from tests.pretrained.test_tokenizer import gguf_settings

REPLACE = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
BYTES = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": False}
TEMPLATE = {
    "type": "TemplateProcessing", "pair": [{"Sequence": {"id": name, "type_id": 0}} for name in "AB"],
    "special_tokens": {"x": {"id": "x", "ids": [1], "tokens": ["x"]}},
}  # fmt: skip


def sequence(part, *steps):
    return {"type": "Sequence", part: list(steps)}


def folder_with(tmp_path, **parts):
    """A tiny model whose tokenizer has these parts."""
    path = tiny.write(tmp_path, "llama")
    about = json.loads((path / "tokenizer.json").read_text("utf-8"))
    (path / "tokenizer.json").write_text(json.dumps(about | parts))
    return path


@pytest.mark.parametrize("parts", [
    {"normalizer": sequence("normalizers", *[REPLACE] * 7)},
    {"normalizer": sequence("normalizers", sequence("normalizers", *[REPLACE] * 3), {"type": "NFKD"})},
    {"normalizer": {"type": "Replace", "pattern": {"Regex": "x*"}, "content": "b" * 1000}},
    {"normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "b"}},
    {"normalizer": {"type": "Replace", "pattern": {"Regex": ""}, "content": "b"}},
    {"normalizer": {"type": "Prepend", "prepend": "b" * 1000}},
    {"normalizer": sequence("normalizers", *[{"type": "NFKD"}, REPLACE | {"content": "\ufdfa"}] * 9)},
    {"pre_tokenizer": sequence("pretokenizers", *[BYTES] * 24)},
    {"decoder": sequence("decoders", BYTES, *[REPLACE] * 7)},
    {"decoder": sequence("decoders", *[{"type": "BPEDecoder", "suffix": ""}] * 24)},
    {"decoder": sequence("decoders", *[{"type": "Fuse"}] * 1000)},
    {"post_processor": TEMPLATE | {"single": [{"Sequence": {"id": "A", "type_id": 0}}] * 1000}},
    {"post_processor": TEMPLATE | {"single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 50_000}},
    {"post_processor": TEMPLATE | {
        "single": [{"SpecialToken": {"id": "x", "type_id": 0}}] * 90,
        "special_tokens": {"x": {"id": "x", "ids": [1] * 90, "tokens": ["x"] * 90}},
    }},
], ids=range(14))  # fmt: skip
def test_refuses_steps_that_make_a_text_too_long_or_have_an_empty_pattern(tmp_path, capsys, parts):
    path = folder_with(tmp_path, **parts)
    message = refused(capsys, "sample", path, "--prompt", "aaaa" * 5, "--tokens", 30)
    reason = r"its steps may make a text|it has .* steps, supported are|its template repeats|.* an empty"
    assert re.search(f"tokenizer.json cannot be read: ({reason})", message)


def test_accepts_the_steps_of_known_tokenizers():
    def made(*steps):
        one = tokenizers.Tokenizer(models.BPE({"a": 0}, []))
        one.normalizer, one.pre_tokenizer, one.post_processor, one.decoder = steps
        return one

    cases = tiny.word_piece(), tiny.byte_pairs(), made(  # Llama 2
        normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), pre_tokenizers.Digits(),
        processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 0)]),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                           decoders.Strip(" ", 1, 0)]),
    ), made(  # Llama 3, with NFC as in Qwen
        normalizers.NFC(),
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\p{L}+"), "isolated"), pre_tokenizers.ByteLevel(False)]),
        processors.Sequence([processors.ByteLevel(), processors.TemplateProcessing(
            "<s> $A", special_tokens=[("<s>", 0)])]), decoders.ByteLevel(),
    ), made(  # a multilingual BERT
        normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]),
        pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
        processors.RobertaProcessing(("</s>", 2), ("<s>", 0)), decoders.Metaspace(),
    )  # fmt: skip
    for one in cases:
        check_growth(one)


LETTERS = st.sampled_from([*"aAb 1é\u0130\ufdfa\u1f82\U0001d160\u4e2d▁Ġ", "ab"])
STEPS = st.one_of(
    st.sampled_from([
        normalizers.NFC(), normalizers.NFD(), normalizers.NFKC(), normalizers.NFKD(), normalizers.Lowercase(),
        normalizers.BertNormalizer(), normalizers.BertNormalizer(strip_accents=False, lowercase=False),
        normalizers.ByteLevel(), normalizers.StripAccents(), normalizers.Strip(), normalizers.Nmt(),
    ]),
    st.builds(normalizers.Replace, LETTERS, st.text("aé \u0130\ufdfa", max_size=5)),
    st.builds(lambda regex, text: normalizers.Replace(Regex(regex), text), st.sampled_from(["a", "b*", "."]),
              st.text("aé \u0130\ufdfa", max_size=5)),
    st.builds(normalizers.Prepend, st.text("a ", max_size=4)),
)  # fmt: skip


def length(use, text):
    """The length of the result; 0 for a panic of the package, which `Tokenizer` turns into an error."""
    try:
        return len(use(text))
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return 0


@given(st.lists(STEPS, max_size=4), st.lists(LETTERS, max_size=12).map("".join))
def test_no_normalizer_makes_a_text_longer_than_its_growth(steps, text):
    whole = normalizers.Sequence(steps)
    assert length(whole.normalize_str, text) <= growth._growth_of(whole) * (len(text) + 1)


@given(st.lists(st.sampled_from([
    pre_tokenizers.ByteLevel(True), pre_tokenizers.ByteLevel(False), pre_tokenizers.ByteLevel(True, use_regex=False),
    pre_tokenizers.Metaspace(), pre_tokenizers.Metaspace(prepend_scheme="first"), pre_tokenizers.Digits(True),
    pre_tokenizers.Split("a", "isolated"), pre_tokenizers.BertPreTokenizer(), pre_tokenizers.Punctuation(),
    pre_tokenizers.UnicodeScripts(), pre_tokenizers.FixedLength(1), pre_tokenizers.CharDelimiterSplit("b"),
]), max_size=4), st.lists(LETTERS, max_size=12).map("".join))  # fmt: skip
def test_no_pre_tokenizer_makes_a_text_longer_than_its_growth(steps, text):
    whole = pre_tokenizers.Sequence(steps)
    cut = "".join(piece for piece, _ in whole.pre_tokenize_str(text))
    assert len(cut) <= growth._growth_of(whole) * (len(text) + 1)


@given(st.lists(st.sampled_from([
    decoders.BPEDecoder(""), decoders.BPEDecoder("a"), decoders.CTC("", "", True), decoders.CTC("a", "b"),
    decoders.WordPiece(""), decoders.WordPiece("a"), decoders.Metaspace(), decoders.ByteLevel(), decoders.Fuse(),
    decoders.ByteFallback(), decoders.Strip("a", 1, 1), decoders.Replace("a", "éé"),
]), min_size=1, max_size=4), st.lists(LETTERS, max_size=12))  # fmt: skip
def test_no_decoder_makes_a_text_longer_than_its_growth(steps, tokens):
    whole = decoders.Sequence(steps)
    assert length(whole.decode, tokens) <= growth._growth_of(whole) * sum(len(token) + 1 for token in tokens or [""])


def test_growth_of_a_precompiled_table_is_its_longest_text():
    import base64

    table = (4).to_bytes(4, "little") + bytes(4) + b"abc\0" + "ﷺé".encode() + b"\0"
    state = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(table).decode()}
    assert growth._growth(state) == 3


def test_refuses_an_unknown_step():
    with pytest.raises(InputError, match="has a step 'Doubling', which is unknown here"):
        growth._growth({"type": "Doubling"})


@pytest.mark.parametrize("outside", [
    {"post_processor": [0] * 1000}, {"added_tokens": ["x" * 3000]}, {"decoder": ['"' * 1500]},
    {"decoder": [{}] * 1000}, {"decoder": ['"model": {'] * 200}, {"x": {"model": {"x": "x" * 3000}}},
], ids=range(6))  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_refuses_a_file_with_many_characters_outside_of_its_vocabulary(monkeypatch, outside, first):
    monkeypatch.setattr(growth, "MAX_JSON", 2000)
    model = {"model": {"vocab": {'{"a}': 0, "}\\": 1} | {str(i): i for i in range(1000)}}}
    check_file(memoryview(json.dumps(model, indent=1).encode()))
    about = outside | model if first else model | outside
    for space in (None, 1):
        with pytest.raises(InputError, match="characters outside of its vocabulary, supported are 2,000"):
            check_file(memoryview(json.dumps(about, indent=space).encode()))
    for cut in (b"", b" ", b'{"a": ' + b" " * 3000, b"[" + b"x" * 3000 + b"]"):
        with pytest.raises(InputError, match="it does not end with }, so a part of it may be missing"):
            check_file(memoryview(cut))


def test_a_second_vocabulary_counts_as_outside(monkeypatch):
    monkeypatch.setattr(growth, "MAX_JSON", 2000)
    pair = '"model": ' + json.dumps({"vocab": {str(i): i for i in range(1000)}})
    check_file(memoryview(f"{{{pair}}}".encode()))
    with pytest.raises(InputError, match="characters outside of its vocabulary"):
        check_file(memoryview(f"{{{pair}, {pair}}}".encode()))


@pytest.mark.parametrize(("vocabulary", "values"), [([0] * 5002, 5004), ([[[]]] * 2000, 6002), ([{}] * 3000, 6002)])
def test_refuses_a_file_with_too_many_values(monkeypatch, vocabulary, values):
    monkeypatch.setattr(growth, "MAX_VALUES", 5000)
    with pytest.raises(InputError, match=f"it holds {values:,} values, supported are 5,000"):
        check_file(memoryview(json.dumps({"model": {"vocab": vocabulary}}).encode()))


@pytest.mark.parametrize("about", [{"type": "Unigram"}, {}])
def test_refuses_a_large_unigram_vocabulary_before_the_package_reads_it(tmp_path, monkeypatch, about):
    monkeypatch.setattr(growth, "MAX_JSON", 2000)
    path = folder_with(tmp_path, model=about | {"unk_id": 0, "vocab": [["<unk>", 0.0], *([["é" * 500, -1.5]] * 2)]})
    with pytest.raises(InputError, match="its Unigram tokens have 2,005 bytes, supported are 2,000"):
        tokenizer_of_folder(path)


@pytest.mark.parametrize("name", ['"Regex"', r'"\u0052egex"'])
@pytest.mark.parametrize("size", [None, 1000])
def test_refuses_long_regexes_before_the_package_reads_them(tmp_path, monkeypatch, name, size):
    if size:
        monkeypatch.setattr(growth, "MAX_JSON", 10_000)
    step = {"type": "Replace", "pattern": {"Regex": r"[\p{L}\p{N}]" * 100}, "content": ""}
    path = folder_with(tmp_path, normalizer=sequence("normalizers", step, step))
    text = (path / "tokenizer.json").read_text("utf-8").replace('"Regex"', name)
    text = text.replace('"vocab": {', '"vocab": {' + "".join(f'"{i}": {i}, ' for i in range(size or 0)))
    (path / "tokenizer.json").write_text(text.replace('"normalizer"', '"normalizer": null, "normalizer"', 1))
    with pytest.raises(InputError, match="its regexes have 2,400 characters, supported are 2,000"):
        tokenizer_of_folder(path)


def test_refuses_long_tokens_and_words_and_an_empty_vocabulary(tmp_path):
    long = {"tokens": [*tiny.TOKENS, "x" * 2000]}
    for one in (lambda: tokenizer_of_gguf(gguf_settings(**long)), lambda: Tokenizer(models_of({"x" * 2000: 0}))):
        with pytest.raises(InputError, match="has a token of 2,000 characters, supported are 1,000"):
            one()
    with pytest.raises(InputError, match="its tokenizer has no tokens"):
        Tokenizer(models_of({}))
    pieces = models.WordPiece({"a": 0}, unk_token="a", max_input_chars_per_word=10**6)
    with pytest.raises(InputError, match="cuts words of 1,000,000 characters"):
        Tokenizer(tokenizers.Tokenizer(pieces))


def models_of(vocabulary):
    return tokenizers.Tokenizer(models.BPE(vocabulary, []))


def test_refuses_special_tokens_with_too_many_characters(monkeypatch):
    monkeypatch.setattr("numpy_attention.pretrained.tokenizer.MAX_JSON", 30)
    with pytest.raises(InputError, match="3 special tokens with too many characters"):
        tokenizer_of_gguf(gguf_settings())


def test_refuses_a_gguf_file_with_too_many_merges(monkeypatch):
    monkeypatch.setattr("numpy_attention.pretrained.tokenizer.MAX_VALUES", 300)
    with pytest.raises(InputError, match="its tokenizer has 571 tokens and merges, supported are 300"):
        tokenizer_of_gguf(gguf_settings(merges=["t h"] * 300))


def test_refuses_ids_beyond_the_vocabulary_in_a_post_processor(tmp_path):
    special = {"x": {"id": "x", "ids": [2**32 - 1], "tokens": ["x"]}}
    single = [{"SpecialToken": {"id": "x", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]
    path = folder_with(tmp_path, post_processor=TEMPLATE | {"single": single, "special_tokens": special})
    with pytest.raises(InputError, match=f"its tokenizer has ids up to {2**32 - 1}, but its settings allow"):
        na.load_pretrained(path)


def test_refuses_a_text_without_tokens(tmp_path, capsys):
    nothing = {"type": "Replace", "pattern": {"Regex": "."}, "content": ""}
    path = folder_with(tmp_path, normalizer=nothing)
    message = refused(capsys, "sample", path, "--prompt", string.ascii_letters * 3)
    assert "--prompt: the tokenizer of the model finds no token in the text 'abc" in message


def test_refuses_a_regex_of_a_decoder_that_takes_too_long():
    one = tokenizers.Tokenizer(models.WordLevel({"a" * 40 + "b": 0}, unk_token="b"))
    one.decoder = decoders.Replace(Regex("(a+)+$"), "")
    for decode in (Tokenizer(one).decode, Tokenizer(one).labels):
        with pytest.raises(InputError, match=r"the tokenizer cannot decode its tokens: .*retry-limit"):
            decode([0])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist only on Unix")
def test_tokenizer_file_replaced_after_its_check_is_not_read_again(tmp_path, monkeypatch):
    path = tiny.write(tmp_path, "llama")

    def replaced(raw):
        (path / "tokenizer.json").unlink()
        os.mkfifo(path / "tokenizer.json")

    monkeypatch.setattr("numpy_attention.pretrained.tokenizer.check_file", replaced)
    assert len(tokenizer_of_folder(path)) == tiny.V
