"""Renders chat templates. A template is a program from a stranger: it runs in a process of its own, with limits.

Run as a module, this reads one request from stdin and writes one answer to stdout.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from ..compiler.errors import WebrelaxError

_SECONDS = 10
_MEMORY = 1 << 30
_CHARACTERS = 1 << 24
_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")


def render_chat(config: Mapping[str, Any], messages: Sequence[Mapping[str, str]]) -> str:
    """The prompt that the chat template of a tokenizer_config.json makes of messages. Raises WebrelaxError."""
    if not config.get("chat_template"):
        raise WebrelaxError("the model has no chat template: use --raw to continue plain text")
    tokens = {key: config.get(key) or "" for key in _TOKENS}
    request = {"template": config["chat_template"], "variables": {"messages": messages, **tokens}}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=_SECONDS,
            check=False,
        )
        answer = json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        answer = {"error": f"it takes longer than {_SECONDS} s"}
    except ValueError:  # no answer, or half of one: the process was ended
        answer = {"error": "it takes too much memory"}
    if "error" in answer:
        raise WebrelaxError(f"the model's chat template fails ({answer['error']})")
    text: str = answer["text"]
    return text


def _answer(request: Mapping[str, Any]) -> dict[str, str]:
    from jinja2.exceptions import TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def refuse(message: str) -> None:
        raise TemplateError(message)

    # As the page's library has it, and Hugging Face's Transformers.
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **kw: json.dumps(value, ensure_ascii=False, **kw)
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.datetime.now().strftime(form)
    try:
        template = environment.from_string(request["template"])
        text = template.render(**request["variables"], add_generation_prompt=True)
    except MemoryError:
        return {"error": "it takes too much memory"}
    except Exception as error:
        return {"error": " ".join(str(error).split())[:200] or type(error).__name__}
    if len(text) > _CHARACTERS:
        return {"error": f"it makes a text of {len(text)} characters"}
    return {"text": text}


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))


if __name__ == "__main__":
    _limit_memory()
    json.dump(_answer(json.load(sys.stdin)), sys.stdout)
