"""Text to tokens and back, by the tokenizer and the chat template of a bundle: the same tokens as the page's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from ..compiler.errors import WebrelaxError
from .chat import render_chat
from .manifest import GENERATION_CONFIG, TOKENIZER_CONFIG
from .reader import Bundle

# A Unicode noncharacter, reserved for use inside a program. It breaks up what looks like a control token in a message,
# so that the library sees none there, and is taken out again before the text becomes tokens (as in web/tokenizer.js).
_BREAK = "\ufdd0"


class Text:
    """A model's tokenizer, its chat template and the tokens that end a reply."""

    def __init__(self, bundle: Bundle) -> None:
        self.config: dict[str, Any] = bundle.json("tokenizer_config.json", TOKENIZER_CONFIG)
        self.defaults: dict[str, Any] = bundle.json("generation_config.json", GENERATION_CONFIG)
        self._tokenizer = _tokenizer(bundle)
        ends = self.defaults.get("eos_token_id", [])
        self.ends = frozenset(ends if isinstance(ends, list) else [ends])
        controls = [token.content for token in self._tokenizer.get_added_tokens_decoder().values() if token.special]
        self._control = re.compile(f"(?=(?:{'|'.join(map(re.escape, controls))}))." if controls else "(?!)", re.DOTALL)

    def encode(self, text: str) -> list[int]:
        """A raw prompt: control tokens in it are control tokens, and the model's own beginning is added."""
        return self._tokenizer.encode(text).ids if text else []

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the reply begins; what looks like a control token in it is text.

        Raises WebrelaxError where there is no template.
        """
        disarmed = [{"role": m["role"], "content": self._disarm(m["content"])} for m in messages]
        ids: list[int] = self._tokenizer.encode(render_chat(self.config, disarmed), add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def _disarm(self, content: str) -> str:
        return self._control.sub(rf"\g<0>{_BREAK}", content.replace(_BREAK, ""))


def _tokenizer(bundle: Bundle) -> Any:
    from tokenizers import Tokenizer
    from tokenizers.normalizers import Replace, Sequence

    try:
        tokenizer = Tokenizer.from_str(bundle.file("tokenizer.json").decode())
    except (WebrelaxError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the library raises Exception itself, and panics, which are not even that
        path = bundle.folder / "tokenizer.json"
        raise WebrelaxError(f"{path} is damaged ({error}): build the site again") from error
    if max(tokenizer.get_vocab().values(), default=0) >= bundle.manifest["model"]["vocab"]:
        raise WebrelaxError(f"{bundle.folder} has a tokenizer with more tokens than the model: build the site again")
    # The step after control tokens are split off.
    drop = Replace(_BREAK, "")
    tokenizer.normalizer = Sequence([tokenizer.normalizer, drop]) if tokenizer.normalizer else drop
    return tokenizer
