"""The values that describe an architecture in a GGUF file's metadata, read so that none goes unnoticed."""

from __future__ import annotations

from math import isfinite

from .gguf import GGUFFile, MetadataValue, quote


class Settings:
    """The metadata under `prefix`. A value nobody asked for may change what the model computes: `finish` refuses it.

    Each method takes a name without the prefix and raises WebrelaxError for a value that is missing or unusable.
    """

    def __init__(self, file: GGUFFile, prefix: str) -> None:
        self._file = file
        self._prefix = prefix
        self._unread = [key for key in file.metadata if key.startswith(f"{prefix}.")]

    def count(self, name: str, default: int | None = None) -> int:
        """An integer of at least 1, which may be given as a list of the layers' values where they are all the same."""
        key, value = self._take(name, default)
        if isinstance(value, tuple) and value:
            if any(one != value[0] for one in value):
                raise self._file.error(f"{key!r} differs between layers, which is not supported")
            value = value[0]
        count = self._file.typed(key, value, int)
        if count < 1:
            raise self._file.error(f"{key!r} is {count}; it must be at least 1")
        return count

    def number(self, name: str, least: float, default: float | None = None) -> float:
        """A finite number of at least `least`."""
        key, value = self._take(name, default)
        number = self._file.typed(key, value, float)
        if not isfinite(number) or number < least:
            raise self._file.error(f"{key!r} is {number}; it must be a finite number of at least {least:g}")
        return number

    def only(self, name: str, *accepted: MetadataValue, because: str = "") -> None:
        """Refuses any value but these; it may be missing."""
        key, value = self._take(name, accepted[0])
        if value not in accepted:
            choice = " or ".join(map(str, accepted)) + (f", {because}," if because else "")
            raise self._file.error(f"{key!r} is {quote(value)}; only {choice} is supported")

    def finish(self) -> None:
        """Refuses what was not read."""
        if self._unread:
            key = self._unread[0]
            raise self._file.error(
                f"the metadata have {quote(key)} ({quote(self._file.metadata[key])}), which may change what the model"
                " computes and is not supported"
            )

    def _take(self, name: str, default: MetadataValue | None) -> tuple[str, MetadataValue]:
        key = f"{self._prefix}.{name}"
        if key in self._unread:
            self._unread.remove(key)
        value = self._file.metadata.get(key, default)
        if value is None:
            raise self._file.error(f"the metadata lack {key!r}")
        return key, value
