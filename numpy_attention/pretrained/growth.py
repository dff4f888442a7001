r"""Chapter 35, appendix. How long a tokenizer may make a text

A tokenizer.json holds a vocabulary and the steps around it: a normalizer, a pre-tokenizer, a post-processor, a decoder.
A step may make a text longer, and every step works on the result of the step before. So seven steps that replace each a
by ten turn 20 letters into 2 * 10^8, and a file of a few kilobytes fills the memory. Before the first text is encoded,
this file multiplies the growth of all steps:

    step                  one character becomes at most                       in the file of a Llama 2
    Replace "a" by "bcd"  3: the lengths, divided and rounded up              " " by one letter: 1
    Replace a regex       1 + the length, since a regex may match nothing
    Prepend               1 + the length                                      one letter: 2
    TemplateProcessing    the length of the template, with the text once      <s> $A: 2
    all others            a number in the table GROWTH

A piece of n characters may become at most 100 (n + 1) characters; n + 1, since a regex that matches nothing matches
n + 1 times. This holds for normalizer and pre-tokenizer together, and for the decoder. The post-processor may add at
most 100 special tokens.

The package `tokenizers` needs up to 100 bytes for a byte of a file that holds no vocabulary but, for example, a million
steps, 350 bytes for a byte of the tokens of a Unigram model, which become a tree, and 2000 bytes for a character of a
regex. So all of them are counted before the package reads the file.
"""

import base64
import json
import math
from typing import Any

from numpy_attention.errors import InputError, short_repr
from numpy_attention.pretrained.folders import MAX_JSON

MOST = 100  # the largest growth
MAX_STEPS = 50
MAX_VALUES = 2_500_000  # of a tokenizer.json; that of Gemma 3 has 1.9 million
MAX_REGEX = 2000  # characters of all regexes together; reading a longer one may take minutes and gigabytes
MAX_TOKEN = 1000  # characters; a known one has 128 spaces
MAX_WORD = 1000  # characters of a word that WordPiece may cut; the time grows with the square
GROWTH = {  # the most characters that each kind of step makes of one character
    "NFC": 3, "NFD": 4, "NFKC": 18, "NFKD": 18, "Lowercase": 2, "BertNormalizer": 4,
    "ByteLevel": 5,  # four bytes become four letters, and a space may come first
    "Metaspace": 2, "WordPiece": 2, "BPEDecoder": 2, "CTC": 2, "BertProcessing": 3, "RobertaProcessing": 3,
    **dict.fromkeys(("Strip", "StripAccents", "Nmt", "ByteFallback", "Fuse", "BertPreTokenizer", "Whitespace"), 1),
    **dict.fromkeys(("WhitespaceSplit", "Punctuation", "Digits", "Split", "CharDelimiterSplit", "FixedLength"), 1),
    "UnicodeScripts": 1,
}


def check_file(raw: memoryview) -> None:
    """Check the bytes of a tokenizer.json before the package `tokenizers` reads them.

    Raises: InputError if it is cut off, or holds too many values, too long regexes, or more than MAX_JSON characters
    outside of the vocabulary or in Unigram tokens; ValueError or RecursionError if it is not JSON.
    """
    if not bytes(raw[-100:]).rstrip().endswith(b"}"):
        raise InputError("it does not end with }, so a part of it may be missing")
    pieces = (bytes(raw[i : i + 2**16]) for i in range(0, len(raw), 2**16))
    values = sum(piece.count(b",") + piece.count(b"[") + piece.count(b"{") for piece in pieces)
    if values > MAX_VALUES:
        raise InputError(f"it holds {values:,} values, supported are {MAX_VALUES:,}")
    regexes, unigrams = [0], [0]

    def measured(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        """Called for each object. The pairs stay a list, because a name may come twice."""
        for name, value in pairs:
            if name == "Regex" and isinstance(value, str):
                regexes.append(len(value))
            if name == "vocab" and isinstance(value, list):  # Unigram has a list of lists, others an object
                tokens = (str(one[0]) for one in value if one and isinstance(one, list))
                unigrams.extend(len(token.encode("utf-8", "replace")) for token in tokens)
        return pairs

    pairs = json.loads(bytes(raw), object_pairs_hook=measured)
    if sum(regexes) > MAX_REGEX:
        raise InputError(f"its regexes have {sum(regexes):,} characters, supported are {MAX_REGEX:,}")
    if sum(unigrams) > MAX_JSON:
        raise InputError(f"its Unigram tokens have {sum(unigrams):,} bytes, supported are {MAX_JSON:,}")
    if len(raw) > MAX_JSON:
        vocabulary = next((pair for pair in pairs if pair[0] == "model"), None)
        outside = len(json.dumps([pair for pair in pairs if pair is not vocabulary], ensure_ascii=False))
        if outside > MAX_JSON:
            raise InputError(f"it holds {outside:,} characters outside of its vocabulary, supported are {MAX_JSON:,}")


def check_growth(tokenizer: Any) -> None:
    """Check the steps of a tokenizer of the package `tokenizers`.

    Raises: InputError if they are too many or unknown, or if they make a text more than MOST times as long.
    """
    normalizer, cut, after, decoder = (
        _growth_of(getattr(tokenizer, part)) for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder")
    )
    for growth in (normalizer * cut, after, decoder):
        if growth > MOST:
            size = f"{min(growth, 10**9):,} times as long or longer, supported are {MOST} times"
            raise InputError(f"its steps may make a text {size}")


def check_vocabulary(tokenizer: Any) -> None:
    """Check the vocabulary of a tokenizer of the package `tokenizers`.

    Raises: InputError if it is empty, or if a token or a word is too long.
    """
    vocabulary = tokenizer.get_vocab()
    if not vocabulary:
        raise InputError("its tokenizer has no tokens")
    if len(longest := max(vocabulary, key=len)) > MAX_TOKEN:
        raise InputError(f"its tokenizer has a token of {len(longest):,} characters, supported are {MAX_TOKEN:,}")
    if (word := getattr(tokenizer.model, "max_input_chars_per_word", 0)) > MAX_WORD:
        raise InputError(f"its tokenizer cuts words of {word:,} characters, supported are {MAX_WORD:,}")


def _growth_of(part: Any) -> int:
    if part is None:
        return 1
    state = part.__getstate__()
    if (steps := state.count(b'"type"')) > MAX_STEPS:
        raise InputError(f"it has {steps:,} steps, supported are {MAX_STEPS}")
    return _growth(json.loads(state))


def _growth(step: dict[str, Any]) -> int:
    """The most characters that a step makes of one character."""
    kind = step["type"]
    if kind == "Sequence":
        return math.prod(map(_growth, next(value for value in step.values() if isinstance(value, list))))
    if kind == "Replace":
        [(how, pattern)] = step["pattern"].items()
        if not pattern:
            raise InputError("its step Replace has an empty pattern")
        size = len(step["content"])
        return 1 + size if how == "Regex" else max(1, -(-size // len(pattern)))
    if kind == "Prepend":
        return 1 + len(step["prepend"])
    if kind == "TemplateProcessing":
        if (times := sum("Sequence" in part for part in step["single"])) > 1:
            raise InputError(f"its template repeats the text {times:,} times")
        ids = {name: len(token["ids"]) for name, token in step["special_tokens"].items()}
        return sum(ids[part["SpecialToken"]["id"]] if "SpecialToken" in part else 1 for part in step["single"])
    if kind == "Precompiled":  # a table in base64: its first size, what it finds, then the replacements
        table = base64.b64decode(step["precompiled_charsmap"])
        texts = table[4 + int.from_bytes(table[:4], "little") :].split(b"\0")
        return max(1, *(len(text.decode("utf-8", "replace")) for text in texts))
    if kind not in GROWTH:
        raise InputError(f"it has a step {short_repr(kind)}, which is unknown here")
    return GROWTH[kind]
