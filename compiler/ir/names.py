"""Names that are not taken yet."""

from __future__ import annotations

from collections.abc import Iterable


class Names:
    """The names that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._last = dict.fromkeys(taken, 0)  # with the number that each got last, where it would repeat

    def fresh(self, hint: str) -> str:
        """A name that is taken from now on: `hint` itself if it is free, or with a number."""
        name, number = hint, self._last.get(hint, 0)
        while name in self._last:
            number += 1
            name = f"{hint}_{number}"
        self._last[name] = 0
        self._last[hint] = number
        return name
