"""Text to tokens and back, by the tokenizer and the chat template of a bundle."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from ..compiler.errors import WebrelaxError
from .reader import Bundle


class Text:
    """A model's tokenizer, its chat template and the tokens that end a reply."""

    def __init__(self, bundle: Bundle) -> None:
        from tokenizers import Tokenizer

        self._tokenizer = Tokenizer.from_str(bundle.file("tokenizer.json").decode())
        self.config: dict[str, Any] = bundle.json("tokenizer_config.json")
        generation: dict[str, Any] = bundle.json("generation_config.json")
        ends = generation.get("eos_token_id", [])
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        self.defaults = generation

    def encode(self, text: str) -> list[int]:
        """The tokens of a plain text, with the model's first token where it wants one."""
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        if self.config.get("add_bos_token"):
            first: int | None = self._tokenizer.token_to_id(self.config["bos_token"])
            ids = ids if first is None else [first, *ids]
        return ids

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the reply begins. Raises WebrelaxError without a template."""
        ids: list[int] = self._tokenizer.encode(render_chat(self.config, messages), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text


def render_chat(config: dict[str, Any], messages: Sequence[dict[str, str]]) -> str:
    """The prompt that the model's chat template makes of messages."""
    from jinja2 import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    template = config.get("chat_template")
    if not template:
        raise WebrelaxError("the model has no chat template: use --raw to continue plain text")

    def fail(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value, **kw: json.dumps(value, ensure_ascii=False, **kw)
    environment.globals["raise_exception"] = fail
    tokens = {key: config.get(key) or "" for key in ("bos_token", "eos_token", "unk_token", "pad_token")}
    try:
        rendered: str = environment.from_string(template).render(
            messages=messages, add_generation_prompt=True, **tokens
        )
    except TemplateError as error:
        raise WebrelaxError(f"the model's chat template refuses these messages: {error}") from error
    return rendered
