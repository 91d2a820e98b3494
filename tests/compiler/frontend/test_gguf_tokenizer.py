from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer, pre_tokenizers

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.frontend import GGUFFile, MetadataValue, open_gguf, tokenizer_files

NASTY = {
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 😀😀",
    "combining marks": "e\u0301 n\u0303o Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L",
    "Thai": "ภาษาไทยไม่มีการเว้นวรรคระหว่างคำ",
    "right to left": "שלום עולם \u202eabc\u202c مرحبا",
    "code": "def f(x):\n\tif x >= 10:\n\t\treturn {'a': x**2}  # squared\r\n",
    "long whitespace": " " * 67 + "x" + "\n" * 33 + "\t \t y  ",
    "control characters": "a\x00b\x01c\x07d\x1be\x7ff",
    "numbers": "3.14159 1,000,000 ١٢٣ Ⅻ ½",
    "contractions": "I'll DON'T we've 'tis o'clock",
    "special spaces": "a\u00a0b\u2003c\ufeffd\u3000e",
    "beyond the first plane": "\U0001d518\U0001d52b 𓀀 𠀀",
    "looks special": "<|im_start <|im_end|x <| endoftext |>",
    "": "",
}


TOKENS = 265  # of small()


def alphabet() -> list[str]:
    """The 256 characters that stand for bytes in GPT-2's vocabulary, in byte order."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in plain else next(others)) for byte in range(256)]


def small(pre: MetadataValue | None = "gpt-2", **changes: MetadataValue | None) -> GGUFFile:
    """A tokenizer of all bytes, a few merges, two control tokens and a user-defined one.

    A change replaces a value (`ggml__tokens` stands for `tokenizer.ggml.tokens`); None removes it.
    """
    merges = ("h e", "l l", "he ll", "hell o", "Ġ hello")
    joined = tuple(dict.fromkeys(merge.replace(" ", "") for merge in merges))
    tokens = (*alphabet(), *joined, "Ġworld", "<|im_end|>", "<tool>", "<s>")
    metadata: dict[str, MetadataValue | None] = {
        "general.architecture": "llama",
        "llama.context_length": 512,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": (1,) * (len(tokens) - 3) + (3, 4, 3),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": len(tokens) - 1,
        "tokenizer.ggml.eos_token_id": len(tokens) - 3,
    }
    metadata |= {f"tokenizer.{name.replace('__', '.')}": value for name, value in changes.items()}
    return GGUFFile(Path("small.gguf"), 3, {key: one for key, one in metadata.items() if one is not None}, {})


def load(model: GGUFFile) -> Tokenizer:
    return Tokenizer.from_str(tokenizer_files(model)["tokenizer.json"].decode())


@cache
def load_once(pre: str) -> Tokenizer:
    return load(small(pre))


def regex_then_bytes(numbers: str) -> Any:
    """As Llama 3 and Qwen2 write it."""
    words = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
    rest = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    split = pre_tokenizers.Split(Regex(words + numbers + rest), "isolated")
    return pre_tokenizers.Sequence([split, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def parse(model: GGUFFile, file: str) -> Any:
    return json.loads(tokenizer_files(model)[file])


@pytest.fixture(scope="module")
def smollm2(smollm2_path: Path) -> Mapping[str, bytes]:
    return tokenizer_files(open_gguf(smollm2_path))


@pytest.fixture(scope="module")
def tokenizer(smollm2: Mapping[str, bytes]) -> Tokenizer:
    return Tokenizer.from_str(smollm2["tokenizer.json"].decode())


def test_ids_equal_the_oracle(tokenizer: Tokenizer, smollm2_oracle: dict[str, Any]) -> None:
    for prompt in smollm2_oracle["prompts"]:
        assert tokenizer.encode(prompt["text"]).ids == prompt["ids"]


@pytest.mark.parametrize("name", NASTY)
def test_decoding_gives_the_text_back(tokenizer: Tokenizer, name: str) -> None:
    text = NASTY[name]
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


@settings(max_examples=150, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0x3FFFF), max_size=40))
def test_decoding_gives_any_text_back(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.decode(tokenizer.encode(text).ids, skip_special_tokens=False) == text


def test_digits_are_split(tokenizer: Tokenizer) -> None:
    assert tokenizer.encode("in 1998 x²³").tokens == ["in", "Ġ", "1", "9", "9", "8", "Ġx", "Â²", "Â³"]


def test_control_tokens_are_special(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("<|im_start|>user\nHi<|im_end|>").ids
    assert (ids[0], ids[-1]) == (1, 2)
    assert tokenizer.decode(ids) == "user\nHi"


def test_files_of_the_real_model(smollm2: Mapping[str, bytes]) -> None:
    config = json.loads(smollm2["tokenizer_config.json"])
    template = config.pop("chat_template")
    assert template.startswith("{% for message in messages %}")
    assert config == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
        "model_max_length": 8192,
    }
    assert json.loads(smollm2["generation_config.json"]) == {
        "eos_token_id": [2, 0],
        "bos_token_id": 1,
        "pad_token_id": 2,
    }


def test_same_bytes_each_time(smollm2: Mapping[str, bytes], smollm2_path: Path) -> None:
    assert tokenizer_files(open_gguf(smollm2_path)) == smollm2


@pytest.mark.parametrize("system", [False, True])
def test_chat_template(smollm2: Mapping[str, bytes], tokenizer: Tokenizer, system: bool) -> None:
    template = jinja2.Template(json.loads(smollm2["tokenizer_config.json"])["chat_template"])
    messages = [{"role": "system", "content": "Be brief."}] if system else []
    messages += [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello!"},
        {"role": "user", "content": "Why?"},
    ]
    default = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    text = template.render(messages=messages, add_generation_prompt=True)
    assert text == (
        f"<|im_start|>system\n{'Be brief.' if system else default}<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello!<|im_end|>\n"
        "<|im_start|>user\nWhy?<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.encode(text).ids.count(1) == 5


# How the models that use each name split text in their own tokenizer.json.
ORIGINALS = {
    "gpt-2": pre_tokenizers.ByteLevel(add_prefix_space=False),
    "smollm": pre_tokenizers.Sequence([pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]),
    "llama-bpe": regex_then_bytes(r"\p{N}{1,3}"),
    "qwen2": regex_then_bytes(r"\p{N}"),
}


@pytest.mark.parametrize("pre", ORIGINALS)
@settings(max_examples=100, deadline=None)
@given(text=st.text(max_size=30) | st.text("aZ'sLl 12٣½\t\n\r.,é日", max_size=30))
@example("I'LL say  12345!\n  x \r\n\r\n we've")
@example("".join(NASTY.values()))
def test_pre_tokenizers_split_as_the_original_ones(pre: str, text: str) -> None:
    assume("\u017f" not in text)  # the long s: an s to (?i:), but no contraction
    assert load_once(pre).pre_tokenizer.pre_tokenize_str(text) == ORIGINALS[pre].pre_tokenize_str(text)


def test_the_default_pre_tokenizer() -> None:
    pieces = load(small("default")).pre_tokenizer.pre_tokenize_str("I'll say  12345!=\n  x")
    assert [piece for piece, _ in pieces] == ["I", "'", "ll", "Ġsay", "Ġ", "Ġ", "123", "45", "!=", "ĊĠ", "Ġx"]


def test_missing_pre_tokenizer_is_the_default() -> None:
    assert tokenizer_files(small(None)) == tokenizer_files(small("default"))


def test_qwen2_normalizes() -> None:
    assert load(small("qwen2")).encode("e\u0301").ids == load(small("gpt-2")).encode("é").ids


def test_llama3_prefers_whole_tokens_and_begins_with_bos() -> None:
    """No merge leads to "Ġworld": only a tokenizer that ignores merges for whole tokens finds it."""
    assert load(small("llama-bpe")).encode(" world").tokens == ["<s>", "Ġworld"]
    assert load(small("llama-bpe")).encode(" world", add_special_tokens=False).tokens == ["Ġworld"]
    assert load(small("gpt-2")).encode(" world").tokens == ["Ġ", "w", "o", "r", "l", "d"]
    assert load(small("llama-bpe", ggml__add_bos_token=False)).encode("1").tokens == ["1"]


def test_bos_and_eos_where_the_file_says_so() -> None:
    model = small(ggml__add_bos_token=True, ggml__add_eos_token=True)
    assert load(model).encode("hello").tokens == ["<s>", "hello", "<|im_end|>"]
    assert load(model).encode("1", "2").tokens == ["<s>", "1", "<|im_end|>", "<s>", "2", "<|im_end|>"]
    assert parse(model, "tokenizer_config.json")["add_bos_token"] is True


def test_user_defined_tokens_are_kept_when_special_ones_are_skipped() -> None:
    tokenizer = load(small())
    ids = tokenizer.encode("hello<tool>x<|im_end|>").ids
    assert tokenizer.decode(ids) == "hello<tool>x"


def test_optional_parts_may_be_absent() -> None:
    model = small(ggml__token_type=None, ggml__bos_token_id=None, ggml__eos_token_id=None)
    assert parse(model, "generation_config.json") == {"eos_token_id": []}
    assert "chat_template" not in parse(model, "tokenizer_config.json")
    assert parse(model, "tokenizer.json")["added_tokens"] == []


def test_every_end_of_a_reply_is_listed() -> None:
    model = small(ggml__eos_token_id=3, ggml__eot_token_id=5, ggml__eom_token_id=3)
    count = len(model.require("tokenizer.ggml.tokens", tuple))
    assert parse(model, "generation_config.json")["eos_token_id"] == [3, 5, count - 3]


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"ggml__model": None}, "the metadata lack 'tokenizer.ggml.model'"),
        (
            {"ggml__model": "llama"},
            "the tokenizer model 'llama' (SentencePiece) is not supported; only 'gpt2' (BPE) is",
        ),
        ({"ggml__pre": "tekken"}, "the pre-tokenizer 'tekken' is not supported; supported are default, gpt-2, "),
        ({"ggml__pre": 7}, "the value of 'tokenizer.ggml.pre' is 7; expected text"),
        ({"ggml__tokens": None}, "the metadata lack 'tokenizer.ggml.tokens'"),
        ({"ggml__tokens": ()}, "the tokenizer has no tokens"),
        ({"ggml__tokens": ("a", 1)}, "'tokenizer.ggml.tokens' holds values of a wrong type"),
        ({"ggml__tokens": ("a", "b", "a"), "ggml__token_type": None}, "the tokenizer lists the token 'a' twice"),
        ({"ggml__tokens": "abc"}, "the value of 'tokenizer.ggml.tokens' is 'abc'; expected a list"),
        ({"ggml__token_type": (1, 1)}, "tokens but 2 token types"),
        ({"ggml__token_type": (9,) * TOKENS}, "token 0 has the unknown type 9"),
        ({"ggml__merges": None}, "the metadata lack 'tokenizer.ggml.merges'"),
        ({"ggml__merges": ("h e", "he")}, "merge 1 of the tokenizer, 'he', does not join two tokens to a third"),
        ({"ggml__merges": ("x y",)}, "merge 0 of the tokenizer, 'x y', does not join"),
        ({"ggml__merges": ("h e l",)}, "merge 0 of the tokenizer, 'h e l', does not join"),
        ({"ggml__eos_token_id": 5000}, "'tokenizer.ggml.eos_token_id' is 5000, but the tokenizer has"),
        ({"ggml__bos_token_id": -1}, "'tokenizer.ggml.bos_token_id' is -1, but"),
        (
            {"ggml__bos_token_id": None, "ggml__add_bos_token": True},
            "the tokenizer adds a token 'bos' to each text, but does not say which",
        ),
        ({"ggml__add_bos_token": 1}, "'tokenizer.ggml.add_bos_token' is 1; expected true or false"),
        ({"chat_template": ("a",)}, "the value of 'tokenizer.chat_template' is a list of 1; expected text"),
    ],
)
def test_unusable_metadata(changes: dict[str, MetadataValue | None], problem: str) -> None:
    with pytest.raises(WebrelaxError) as caught:
        tokenizer_files(small(**changes))
    assert str(caught.value).startswith("small.gguf: ")
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)
