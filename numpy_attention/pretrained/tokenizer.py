"""Chapter 35. The tokenizer of a pretrained model

Ids have a meaning only together with the vocabulary that the model was trained with. The vocabulary comes with the
weights: a list of tokens and the merges that make them (Chapter 27, continued), in a standard format that the package
`tokenizers` reads (extra `pretrained`). A tokenizer needs two more things.

A splitting rule cuts a text into chunks, and merges never cross the border of a chunk. Each family of models has its
own rule, and the rule has a name.

    text      "I am 42."        gpt-2     |I| am| 42|.|          smollm    |I| am| |4|2|.|

Special tokens are not text: <|im_start|> is a single id. A user cannot type this id, because everything the user types
is encoded as plain text. A chat template puts special tokens around each turn (`chat.py`).
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from numpy_attention.errors import InputError, short_repr
from numpy_attention.files import reading
from numpy_attention.pretrained.folders import read_json
from numpy_attention.pretrained.gguf_files import package, refused
from numpy_attention.training.byte_pairs import utf8
from numpy_attention.training.data import Vocabulary

# splitting rules, by their names in GGUF files; None: the rule of GPT-2
_CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
RULES = {
    "gpt-2": None,
    "smollm": None,  # with each digit as a separate chunk
    "qwen2": _CASES + r"\p{N}" + _REST,
    **dict.fromkeys(("llama-bpe", "dbrx", "smaug-bpe"), _CASES + r"\p{N}{1,3}" + _REST),
}
CONTROL, USER_DEFINED = 3, 4  # kinds in a GGUF file: a special token, and a token that is never split


class Tokenizer(Vocabulary):
    """A vocabulary of the package `tokenizers`. All text is encoded as plain text; `id_of` gives the special tokens.

    Raises: InputError for an empty vocabulary.
    """

    def __init__(self, tokenizer: Any, stop: Collection[int] = (), template: str | None = None) -> None:
        if not tokenizer.get_vocab_size():
            raise InputError("its tokenizer has no tokens")
        tokenizer.encode_special_tokens = True  # text that looks like a special token is encoded as plain text
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.stop = frozenset(stop)  # ids that end an answer
        self.template = template  # the chat template, if the file has one

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,), without special tokens."""
        return self._encoded(text, special=False)

    def encode_with_special(self, text: str) -> np.ndarray:
        """The ids of the text with the special tokens that the model was trained with, (N,). For a BERT
        [CLS] comes first and [SEP] last; for some GPTs one special token comes first, for other GPTs none."""
        return self._encoded(text, special=True)

    def decode(self, ids: np.ndarray) -> str:
        """The text of the ids, without special tokens."""
        return self._decoded(ids)

    def labels(self, ids: np.ndarray) -> list[str]:
        """The text of each id, for display; special tokens appear by name."""
        return [self._decoded([i], special=True) for i in ids]

    def characters_in(self, ids: np.ndarray) -> int:
        """The number of characters in the text of the ids."""
        return len(self.decode(ids))

    def id_of(self, token: str) -> int:
        """The id of one token, special or not, by its name.

        Raises: InputError for an unknown token.
        """
        found = self.tokenizer.token_to_id(token)
        if found is None:
            raise InputError(f"the tokenizer has no token {token!r}")
        return int(found)

    def saved(self) -> dict[str, Any]:
        return {"vocabulary": "tokenizer", "tokenizer": self.tokenizer.to_str(), "stop": sorted(self.stop)}

    def _decoded(self, ids: Iterable[int], special: bool = False) -> str:
        with refused("the tokenizer cannot decode its tokens"):
            return str(self.tokenizer.decode([int(i) for i in ids], skip_special_tokens=not special))

    def _encoded(self, text: str, special: bool) -> np.ndarray:
        utf8(text)  # refuses half a surrogate pair
        with refused("the tokenizer cannot encode the text"):
            return np.array(self.tokenizer.encode(text, add_special_tokens=special).ids, dtype=np.int64)


def tokenizer_of_gguf(settings: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the settings of a GGUF file.

    Raises: InputError for a tokenizer that is not a byte-pair encoding, or that uses an unknown splitting rule.
    """
    tokenizers = package("tokenizers", "pretrained models")

    def setting(name: str) -> Any:
        return settings.get(f"tokenizer.ggml.{name}")

    def special_ids(*names: str) -> list[int]:
        return [i for i in map(setting, names) if type(i) is int and 0 <= i < len(tokens)]

    kind, rule = setting("model"), settings.get("tokenizer.ggml.pre", "")
    if str(kind) != "gpt2" or str(rule) not in ("", *RULES):  # str: a file may hold a list instead of a text
        known = f"supported is 'gpt2' with one of {', '.join(RULES)}"
        raise InputError(f"its tokenizer is {short_repr(kind)} with the rule {short_repr(rule)}, {known}")
    rule = rule or "gpt-2"
    tokens, merges = setting("tokens"), setting("merges")
    if not all(isinstance(found, list) and all(isinstance(one, str) for one in found) for found in (tokens, merges)):
        raise InputError("its tokenizer has no list of tokens or no list of merges")
    ids = {token: i for i, token in enumerate(tokens)}
    pairs = [tuple(pair.split(" ")) for pair in merges]
    if len(ids) < len(tokens) or not all(len(p) == 2 and {*p, "".join(p)} <= ids.keys() for p in pairs):
        raise InputError("its tokenizer has a token twice, or a merge that does not join two tokens into a third token")
    kinds = setting("token_type") if isinstance(setting("token_type"), list) else ()
    added = [(token, kind == CONTROL) for token, kind in zip(tokens, kinds) if kind in (CONTROL, USER_DEFINED)]
    with refused("its tokenizer cannot be built"):
        whole = rule == "llama-bpe"  # a chunk that is a token in the list needs no merges
        made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, pairs, ignore_merges=whole))
        made.pre_tokenizer = _splitter(tokenizers, rule)
        if rule == "qwen2":  # a letter and its accent become one character
            made.normalizer = tokenizers.normalizers.NFC()
        made.decoder = tokenizers.decoders.ByteLevel()
        made.add_tokens([tokenizers.AddedToken(token, special=special, normalized=False) for token, special in added])
        for i in special_ids("bos_token_id") if setting("add_bos_token") is True else ():
            begin = [tokens[i], "$A"]
            made.post_processor = tokenizers.processors.TemplateProcessing(begin, special_tokens=[(tokens[i], i)])
    stop = special_ids("eos_token_id", "eot_token_id")
    template = settings.get("tokenizer.chat_template")
    return Tokenizer(made, stop, template if isinstance(template, str) else None)


def _splitter(tokenizers: Any, rule: str) -> Any:
    """The object that cuts a text into chunks by a rule, and writes each byte as the tokens write it."""
    split, pattern = tokenizers.pre_tokenizers, RULES[rule]
    steps = [split.Digits(individual_digits=True)] if rule == "smollm" else []
    if pattern:
        steps.append(split.Split(tokenizers.Regex(pattern), "isolated"))
    steps.append(split.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    return split.Sequence(steps)


def tokenizer_of_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder: tokenizer.json, and the chat template in tokenizer_config.json or chat_template.jinja.

    Raises: InputError for a missing or damaged file.
    """
    tokenizers = package("tokenizers", "pretrained models")
    file, about, jinja = (folder / n for n in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"))
    with reading(file), refused(f"{file} cannot be read"):
        made = tokenizers.Tokenizer.from_buffer(file.read_bytes())
    config = read_json(about) if about.exists() else {}
    end, template = config.get("eos_token"), config.get("chat_template")
    end = end.get("content") if isinstance(end, dict) else end
    with refused(f"{about} names an impossible eos_token"):  # half a surrogate pair
        last = made.token_to_id(end) if isinstance(end, str) else None
    if template is None and jinja.exists():
        with reading(jinja):
            template = jinja.read_text("utf-8", "replace")
    return Tokenizer(made, [] if last is None else [last], template if isinstance(template, str) else None)

