"""From the tokenizer that a GGUF file carries to the three JSON files that a page reads.

The pre-tokenizers follow llama.cpp (`llm_tokenizer_bpe` in src/llama-vocab.cpp), which defines the values of
`tokenizer.ggml.pre`, in forms that the Rust and the JavaScript `tokenizers` read alike: its `Digits` knows other digits
in JavaScript, and an inline `(?i:...)` is not JavaScript everywhere.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from .gguf import GGUFFile

Json = dict[str, Any]
_Item = TypeVar("_Item", str, int)

_CONTRACTIONS = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_WORDS = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


@dataclass(frozen=True)
class _PreTokenizer:
    """Regular expressions that split the text one after the other, and what else the name implies."""

    splits: tuple[str, ...]
    ignore_merges: bool = False  # a piece that is a token as a whole is not merged up from bytes
    add_bos: bool = False  # where the file does not say
    normalizer: str | None = None


_LLAMA3 = _PreTokenizer((_WORDS + r"\p{N}{1,3}" + _REST,), ignore_merges=True, add_bos=True)
_PRE_TOKENIZERS: Mapping[str, _PreTokenizer] = MappingProxyType(
    {
        "default": _PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")),
        "gpt-2": _PreTokenizer((_GPT2,)),
        "llama-bpe": _LLAMA3,
        "llama3": _LLAMA3,
        "llama-v3": _LLAMA3,
        "qwen2": _PreTokenizer((_WORDS + r"\p{N}" + _REST,), normalizer="NFC"),
        "smollm": _PreTokenizer((r"\p{N}", _GPT2)),
    }
)

_NORMAL, _CONTROL, _USER_DEFINED, _TOKEN_TYPES = 1, 3, 4, range(7)

# Control tokens that end a turn or a text in some chat format, beside those that the file names by id.
_END_TOKENS = frozenset(
    ("<|endoftext|>", "<|end_of_text|>", "<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>")
)
_END_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


def tokenizer_files(model: GGUFFile) -> dict[str, bytes]:
    """File name -> content, the same bytes for the same metadata; WebrelaxError where they are unusable."""
    return {
        "tokenizer.json": _dump(tokenizer_json(model)),
        "tokenizer_config.json": _dump(tokenizer_config(model)),
        "generation_config.json": _dump(generation_config(model)),
    }


def tokenizer_json(model: GGUFFile) -> Json:
    """The content of `tokenizer.json`: a byte-level BPE tokenizer in Hugging Face's format."""
    pre = _pre_tokenizer(model)
    tokens = _tokens(model)
    types = _token_types(model, len(tokens))
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    if len(vocabulary) != len(tokens):
        twice = next(token for token_id, token in enumerate(tokens) if vocabulary[token] != token_id)
        raise model.error(f"the tokenizer lists the token {twice!r} twice")
    splits = [
        {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False} for regex in pre.splits
    ]
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            _added_token(token_id, token, special=kind == _CONTROL)
            for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in (_CONTROL, _USER_DEFINED)
        ],
        "normalizer": {"type": pre.normalizer} if pre.normalizer else None,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [*splits, _byte_level(add_prefix_space=False)]},
        "post_processor": _post_processor(model, pre, tokens),
        "decoder": _byte_level(add_prefix_space=True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": pre.ignore_merges,
            "vocab": vocabulary,
            "merges": _merges(model, vocabulary),
        },
    }


def tokenizer_config(model: GGUFFile) -> Json:
    """The content of `tokenizer_config.json`: special tokens by text, and the chat template if there is one."""
    tokens = _tokens(model)
    config: Json = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": _adds_bos(model, _pre_tokenizer(model)),
        "add_eos_token": model.optional("tokenizer.ggml.add_eos_token", bool) or False,
        "clean_up_tokenization_spaces": False,
    }
    for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding")):
        token_id = _token_id(model, f"{key}_token_id", len(tokens))
        if token_id is not None:
            config[f"{name}_token"] = tokens[token_id]
    architecture = model.optional("general.architecture", str)
    context_length = model.optional(f"{architecture}.context_length", int)
    if context_length is not None:
        config["model_max_length"] = context_length
    template = model.optional("tokenizer.chat_template", str)
    if template is not None:
        config["chat_template"] = template
    return config


def generation_config(model: GGUFFile) -> Json:
    """The content of `generation_config.json`: `eos_token_id` lists every id that ends a reply."""
    tokens = _tokens(model)
    types = _token_types(model, len(tokens))
    ends = [_token_id(model, key, len(tokens)) for key in _END_KEYS]
    ends += [token_id for token_id, token in enumerate(tokens) if types[token_id] == _CONTROL and token in _END_TOKENS]
    config: Json = {"eos_token_id": list(dict.fromkeys(token_id for token_id in ends if token_id is not None))}
    for name, key in (("bos", "bos"), ("pad", "padding")):
        token_id = _token_id(model, f"{key}_token_id", len(tokens))
        if token_id is not None:
            config[f"{name}_token_id"] = token_id
    return config


def _pre_tokenizer(model: GGUFFile) -> _PreTokenizer:
    kind = model.require("tokenizer.ggml.model", str)
    if kind != "gpt2":
        names = {"llama": " (SentencePiece)", "bert": " (WordPiece)", "t5": " (Unigram)"}
        raise model.error(f"the tokenizer model {kind!r}{names.get(kind, '')} is not supported; only 'gpt2' (BPE) is")
    name = model.optional("tokenizer.ggml.pre", str) or "default"
    pre = _PRE_TOKENIZERS.get(name)
    if pre is None:
        raise model.error(f"the pre-tokenizer {name!r} is not supported; supported are {', '.join(_PRE_TOKENIZERS)}")
    return pre


def _tokens(model: GGUFFile) -> tuple[str, ...]:
    tokens = _list(model, "tokens", str)
    if not tokens:
        raise model.error("the tokenizer has no tokens")
    return tokens


def _token_types(model: GGUFFile, count: int) -> tuple[int, ...]:
    if "tokenizer.ggml.token_type" not in model.metadata:
        return (_NORMAL,) * count
    types = _list(model, "token_type", int)
    if len(types) != count:
        raise model.error(f"the tokenizer has {count} tokens but {len(types)} token types")
    for token_id, kind in enumerate(types):
        if kind not in _TOKEN_TYPES:
            raise model.error(f"token {token_id} has the unknown type {kind}")
    return types


def _merges(model: GGUFFile, vocabulary: Mapping[str, int]) -> list[str]:
    merges = _list(model, "merges", str)
    for number, merge in enumerate(merges):
        left, _, right = merge.partition(" ")
        if " " in right or not {left, right, left + right} <= vocabulary.keys():
            raise model.error(f"merge {number} of the tokenizer, {merge[:80]!r}, does not join two tokens to a third")
    return list(merges)


def _list(model: GGUFFile, name: str, kind: type[_Item]) -> tuple[_Item, ...]:
    values = model.require(f"tokenizer.ggml.{name}", tuple)
    items = tuple(value for value in values if type(value) is kind)
    if len(items) != len(values):
        raise model.error(f"'tokenizer.ggml.{name}' holds values of a wrong type")
    return items


def _token_id(model: GGUFFile, name: str, count: int) -> int | None:
    token_id = model.optional(f"tokenizer.ggml.{name}", int)
    if token_id is not None and not 0 <= token_id < count:
        raise model.error(f"'tokenizer.ggml.{name}' is {token_id}, but the tokenizer has {count} tokens")
    return token_id


def _adds_bos(model: GGUFFile, pre: _PreTokenizer) -> bool:
    said = model.optional("tokenizer.ggml.add_bos_token", bool)
    return pre.add_bos if said is None else said


def _post_processor(model: GGUFFile, pre: _PreTokenizer, tokens: Sequence[str]) -> Json | None:
    """What adds the tokens that begin and end a text, None where nothing does."""
    around: dict[str, int] = {}
    adds = {"bos": _adds_bos(model, pre), "eos": model.optional("tokenizer.ggml.add_eos_token", bool) or False}
    for name, wanted in adds.items():
        if wanted:
            token_id = _token_id(model, f"{name}_token_id", len(tokens))
            if token_id is None:
                raise model.error(f"the tokenizer adds a token '{name}' to each text, but does not say which")
            around[name] = token_id
    if not around:
        return None

    def template(sequence: str, type_id: int) -> list[Json]:
        parts: list[Json] = [{"Sequence": {"id": sequence, "type_id": type_id}}]
        if "bos" in around:
            parts.insert(0, {"SpecialToken": {"id": tokens[around["bos"]], "type_id": type_id}})
        if "eos" in around:
            parts.append({"SpecialToken": {"id": tokens[around["eos"]], "type_id": type_id}})
        return parts

    return {
        "type": "TemplateProcessing",
        "single": template("A", 0),
        "pair": template("A", 0) + template("B", 1),
        "special_tokens": {
            tokens[token_id]: {"id": tokens[token_id], "ids": [token_id], "tokens": [tokens[token_id]]}
            for token_id in around.values()
        },
    }


def _added_token(token_id: int, content: str, special: bool) -> Json:
    return {
        "id": token_id,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def _byte_level(add_prefix_space: bool) -> Json:
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": False}


def _dump(content: Json) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
