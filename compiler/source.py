"""A kernel as text, in the language of its target."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelSource:
    """What a host needs of a kernel: its text, in WGSL with the function `entry`, or in C.

    `access` is "read" or "read_write", one for each of the bindings 1, 2, ...
    """

    name: str
    entry: str
    text: str
    workgroup: tuple[int, int, int]
    access: tuple[str, ...]
