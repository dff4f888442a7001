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
from typing import Any, NamedTuple

import numpy as np

from numpy_attention.errors import InputError, short_repr
from numpy_attention.files import reading
from numpy_attention.pretrained.c33_gguf_files import package, refused
from numpy_attention.pretrained.c33a_folders import read_json
from numpy_attention.training.c27_data import Vocabulary
from numpy_attention.training.c27a_byte_pairs import utf8

_CASES = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


class Rule(NamedTuple):
    """How a text is cut into chunks, and whether it begins with a special token in a file that does not say it."""

    pattern: str | None  # None: the pattern of GPT-2
    begins: bool = False


# by their names in GGUF files; `begins` is as in src/llama-vocab.cpp of llama.cpp, for a file without add_bos_token
RULES = {
    "gpt-2": Rule(None),
    "smollm": Rule(None),  # with each digit as a separate chunk
    "qwen2": Rule(_CASES + r"\p{N}" + _REST),
    "llama-bpe": Rule(_CASES + r"\p{N}{1,3}" + _REST, begins=True),
    **dict.fromkeys(("dbrx", "smaug-bpe"), Rule(_CASES + r"\p{N}{1,3}" + _REST)),
}
NORMALIZER = {  # settings of a BERT, and the names of the package
    "do_lower_case": "lowercase", "strip_accents": "strip_accents", "tokenize_chinese_chars": "handle_chinese_chars",
}
CONTROL, USER_DEFINED = 3, 4  # kinds in a GGUF file: a special token, and a token that is never split


class Tokenizer(Vocabulary):
    """A vocabulary of the package `tokenizers`. All text is encoded as plain text; `id_of` gives the special tokens."""

    def __init__(
        self, tokenizer: Any, stop: Collection[int] = (), template: str | None = None, bos: int | None = None,
        longest: int | None = None,
    ) -> None:
        tokenizer.encode_special_tokens = True  # text that looks like a special token is encoded as plain text
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.stop = frozenset(stop)  # ids that end an answer
        self.template = template  # the chat template, if the file has one
        self.bos = bos  # the id of the token that begins a text
        self.longest = longest  # tokens of a text, if a text encoder has learned only shorter texts than its context

    def __len__(self) -> int:
        return int(self.tokenizer.get_vocab_size())

    def encode(self, text: str) -> np.ndarray:
        """The ids of the text, (N,), without special tokens."""
        return self._encoded(text, special=False)

    def encode_with_special(self, text: str, most: int | None = None) -> np.ndarray:
        """The ids of the text with the special tokens that the model was trained with, (N,). For a BERT
        [CLS] comes first and [SEP] last; for some GPTs one special token comes first, for other GPTs none.

        With `most`, a longer text is cut; the special tokens remain."""
        return self._encoded(text, special=True, most=most)

    def encode_prompt(self, text: str) -> np.ndarray:
        """The ids of a text that a GPT continues, (N,): only the special tokens that come first."""
        with refused("the tokenizer cannot encode the text"):
            special = self.tokenizer.encode("a").special_tokens_mask
        first = self.encode_with_special("")[: special.index(0) if 0 in special else 0]
        return np.concatenate([first, self.encode(text)])

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

    def _encoded(self, text: str, special: bool, most: int | None = None) -> np.ndarray:
        utf8(text)  # refuses half a surrogate pair
        with refused("the tokenizer cannot encode the text"):
            found = self.tokenizer.encode(text, add_special_tokens=False)
            if most is not None:
                found.truncate(max(most - self.tokenizer.num_special_tokens_to_add(False), 0))
            return np.array((self.tokenizer.post_process(found) if special else found).ids, dtype=np.int64)


def tokenizer_of_gguf(settings: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer in the settings of a GGUF file.

    Raises: InputError for a tokenizer that is not a byte-pair encoding, or that uses an unknown splitting rule.
    """
    tokenizers = package("tokenizers", "pretrained models")
    about = {name.removeprefix("tokenizer.ggml."): value for name, value in settings.items()}
    kind, rule = about.get("model"), about.get("pre")
    if rule is None and settings.get("general.architecture") == "gpt2":
        rule = "gpt-2"  # its files are older than the setting
    if kind != "gpt2" or not isinstance(rule, str) or rule not in RULES:
        known = f"supported is 'gpt2' with one of {', '.join(RULES)}"
        raise InputError(f"its tokenizer is {short_repr(kind)} with the rule {short_repr(rule)}, {known}")
    with refused("its tokenizer cannot be built"):
        tokens, merges = about["tokens"], [tuple(pair.split(" ")) for pair in about["merges"]]
        whole = rule == "llama-bpe"  # a chunk that is a token in the list needs no merges
        ids = {token: i for i, token in enumerate(tokens)}
        made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, merges, ignore_merges=whole))
        made.pre_tokenizer = _splitter(tokenizers, rule)
        if rule == "qwen2":  # a letter and its accent become one character
            made.normalizer = tokenizers.normalizers.NFC()
        made.decoder = tokenizers.decoders.ByteLevel()
        begin, *stop = (about.get(name, -1) for name in ("bos_token_id", "eos_token_id", "eot_token_id"))
        named = [CONTROL if i in (begin, *stop) else 0 for i in range(len(tokens))]
        made.add_tokens([
            tokenizers.AddedToken(token, special=kind == CONTROL, normalized=False)
            for token, kind in zip(tokens, about.get("token_type", named)) if kind in (CONTROL, USER_DEFINED)
        ])  # fmt: skip
        add = about.get("add_bos_token")
        if (RULES[rule].begins if add is None else add is True) and begin in range(len(tokens)):
            special = {"special_tokens": [(tokens[begin], begin)]}
            made.post_processor = tokenizers.processors.TemplateProcessing([tokens[begin], "$A"], **special)
    template = settings.get("tokenizer.chat_template")
    stop = [i for i in stop if i in range(len(tokens))]
    bos = begin if begin in range(len(tokens)) else None
    return Tokenizer(made, stop, template if isinstance(template, str) else None, bos)


def _splitter(tokenizers: Any, rule: str) -> Any:
    """The object that cuts a text into chunks by a rule, and writes each byte as the tokens write it."""
    split, pattern = tokenizers.pre_tokenizers, RULES[rule].pattern
    steps = [split.Digits(individual_digits=True)] if rule == "smollm" else []
    if pattern:
        steps.append(split.Split(tokenizers.Regex(pattern), "isolated"))
    steps.append(split.ByteLevel(add_prefix_space=False, use_regex=pattern is None))
    return split.Sequence(steps)


def tokenizer_of_folder(folder: Path) -> Tokenizer:
    """The tokenizer of a folder: tokenizer.json, and the chat template in tokenizer_config.json or chat_template.jinja.

    An answer may end with each of several tokens: eos_token in tokenizer_config.json or special_tokens_map.json, and
    the ids in config.json and generation_config.json. As in `transformers`, tokenizer_config.json overrides how the
    tokenizer of a BERT changes letters.

    Raises: InputError for a missing or damaged file.
    """
    tokenizers = package("tokenizers", "pretrained models")
    file, jinja = folder / "tokenizer.json", folder / "chat_template.jinja"

    def values(name: str) -> dict[str, Any]:
        return read_json(folder / name) if (folder / name).exists() else {}

    config = values("tokenizer_config.json")
    special, template = values("special_tokens_map.json") | config, config.get("chat_template")
    others = [values(name).get("eos_token_id") for name in ("config.json", "generation_config.json")]
    with reading(file), refused(f"{file} cannot be read"):
        made = tokenizers.Tokenizer.from_buffer(file.read_bytes())
        if isinstance(made.normalizer, tokenizers.normalizers.BertNormalizer):
            for theirs, ours in NORMALIZER.items():
                if theirs in config:
                    setattr(made.normalizer, ours, config[theirs])
        ids = made.get_vocab()
        bos, ends = ids.get(_token(special.get("bos_token"))), [ids.get(_token(special.get("eos_token")))]
        for end in others:
            ends += end if isinstance(end, list) else [end]
        stop = [i for i in ends if type(i) is int and i in ids.values()]
    if isinstance(template, list):  # several, each with a name
        named = {one.get("name"): one.get("template") for one in template if isinstance(one, dict)}
        template = named.get("default")
    if template is None and jinja.exists():
        with reading(jinja):
            template = jinja.read_text("utf-8", "replace")
    longest = values("sentence_bert_config.json").get("max_seq_length")
    longest = longest if type(longest) is int and longest > 0 else None
    return Tokenizer(made, stop, template if isinstance(template, str) else None, bos, longest)


def _token(about: Any) -> Any:
    """The name of a token, which may be in an object that describes it."""
    name = about.get("content") if isinstance(about, dict) else about
    return name if isinstance(name, str) else None
