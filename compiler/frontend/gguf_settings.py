"""The values that describe an architecture in a GGUF file's metadata, read so that none goes unnoticed."""

from __future__ import annotations

from math import isfinite
from typing import TypeVar

from .gguf import GGUFFile, MetadataValue, quote

_Value = TypeVar("_Value")


class Settings:
    """The metadata under `prefix`. A value that nobody asked for may change what the model computes: `finish` refuses it.

    Each method takes a name without the prefix and raises WebrelaxError for a value that is missing or unusable.
    """

    def __init__(self, file: GGUFFile, prefix: str) -> None:
        self.file = file
        self._prefix = prefix
        self._unread = [key for key in file.metadata if key.startswith(f"{prefix}.")]

    def count(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1, which may be given as a list of the layers' values where they are all the same."""
        key, value = self._take(name)
        if isinstance(value, tuple) and value:
            if any(one != value[0] for one in value):
                raise self.file.error(f"{key!r} differs between layers, which is not supported")
            value = value[0]
        if type(value) is not int:
            return self._default(key, value, default, int)
        if value < 1:
            raise self.file.error(f"{key!r} is {value}; it must be at least 1")
        return value

    def number(self, name: str, least: float, default: float | None = None) -> float:
        """A finite number of at least `least`."""
        key, value = self._take(name)
        if type(value) is not float:
            return self._default(key, value, default, float)
        if not isfinite(value) or value < least:
            raise self.file.error(f"{key!r} is {value}; it must be a finite number of at least {least:g}")
        return value

    def only(self, name: str, *accepted: MetadataValue, because: str = "") -> None:
        """Refuses any value but these and none at all."""
        key, value = self._take(name)
        if value is not None and value not in accepted:
            choice = " or ".join(map(str, accepted)) + (f", {because}," if because else "")
            raise self.file.error(f"{key!r} is {quote(value)}; only {choice} is supported")

    def finish(self) -> None:
        """Refuses what was not read."""
        if self._unread:
            key = self._unread[0]
            raise self.file.error(
                f"the metadata have {quote(key)} ({quote(self.file.metadata[key])}), which may change what the model"
                " computes and is not supported"
            )

    def _take(self, name: str) -> tuple[str, MetadataValue | None]:
        key = f"{self._prefix}.{name}"
        if key in self._unread:
            self._unread.remove(key)
        return key, self.file.metadata.get(key)

    def _default(self, key: str, value: MetadataValue | None, default: _Value | None, kind: type[_Value]) -> _Value:
        if value is None and default is not None:
            return default
        if kind is int:
            self.file.require(key, int)
        self.file.require(key, float)
        raise AssertionError(key)  # one of the two has told what is wrong


__all__ = ["Settings"]
