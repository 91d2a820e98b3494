"""Compares parsed JSON with a description of what it must be: files of a site may come damaged, or edited by hand.

A description is a type (`str`, `bool`, `float` for any finite number), `Whole`, a set of allowed values, `Either`,
`[item]` for a list of any length, `(a, b)` for a list of this length, `Each(value)` for an object with any keys, or
`{"key": value, "key?": value}` for an object with these keys, which may have others; `?` marks optional ones.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from ..compiler.errors import WebrelaxError


@dataclass(frozen=True)
class Whole:
    """An integer within bounds, both included."""

    low: int
    high: int = 2**53 - 1


@dataclass(frozen=True)
class Each:
    """An object whose values are all alike."""

    value: Any


@dataclass(frozen=True)
class Either:
    """One of two things."""

    one: Any
    other: Any


def read_json(content: bytes, path: Path, description: Any) -> Any:
    """The JSON value in the content of the file at `path`. Raises WebrelaxError unless it is as described."""
    try:
        value = json.loads(content)
    except (ValueError, RecursionError):
        raise WebrelaxError(f"{path} is damaged (it is not JSON): build the site again") from None
    wrong = mismatch(value, description)
    if wrong:
        raise WebrelaxError(f"{path} is damaged ({wrong}): build the site again")
    return value


def mismatch(value: Any, description: Any, where: str = "") -> str | None:
    """What is wrong with a value, None where it is as described."""
    match description:
        case Whole(low, high):
            fits = type(value) is int and low <= value <= high
        case Either(one, other):
            fits = mismatch(value, one) is None or mismatch(value, other) is None
        case set():
            fits = isinstance(value, str) and value in description
        case Each(item) if isinstance(value, dict):
            return _first((part, item, f"{where}.{key}") for key, part in value.items())
        case dict() if isinstance(value, dict):
            for key in description:
                if not key.endswith("?") and key not in value:
                    return f"{where}.{key} is missing".lstrip(".")
            wanted = {key.removesuffix("?"): item for key, item in description.items()}
            return _first((value[key], item, f"{where}.{key}") for key, item in wanted.items() if key in value)
        case list() if isinstance(value, list):
            return _first((part, description[0], f"{where}[{at}]") for at, part in enumerate(value))
        case tuple() if isinstance(value, list) and len(value) == len(description):
            return _first((part, description[at], f"{where}[{at}]") for at, part in enumerate(value))
        case type():
            fits = type(value) in ((int, float) if description is float else (description,))
            fits = fits and not (isinstance(value, float) and not isfinite(value))
        case _:
            fits = False
    return None if fits else f"{where.lstrip('.') or 'the whole'} has an unusable value"


def _first(parts: Iterable[tuple[Any, Any, str]]) -> str | None:
    return next((wrong for part in parts if (wrong := mismatch(*part)) is not None), None)
