"""The two errors of the VM: a module that is refused, and a call that fails."""

from __future__ import annotations

from ..errors import WebrelaxError
from .isa import FAULT


class _Fault(WebrelaxError):
    def __init__(
        self,
        fault: str,
        expected: int = 0,
        actual: int = 0,
        *,
        function: int | str = -1,
        instruction: int = -1,
        message: str = "",
    ) -> None:
        self.fault = fault
        self.message = message
        self.expected = expected
        self.actual = actual
        self.function = function
        self.instruction = instruction
        super().__init__(
            FAULT[fault].text.format(
                message=message, expected=expected, actual=actual, function=function, instruction=instruction
            )
        )


class VMFormatError(_Fault):
    """A module breaks the rules of the format (see FAULTS in isa.py); its text is one sentence."""


class VMError(_Fault):
    """A call failed. `message` is the text of a failed check, else empty; `expected` and `actual` are the two values;
    `function` and `instruction` say where; str() is the whole sentence."""
