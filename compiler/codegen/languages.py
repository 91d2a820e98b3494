"""How kernels and routines become text, by the language of the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from .. import wasm, wgsl
from ..passes.dispatch_library import Routine
from ..schedule import Kernel
from ..source import KernelSource
from ..symbolic import Expr, Var
from ..wasm.template import CRoutine
from ..wasm.template import render as render_c
from ..wgsl.template import TemplateRoutine, render

Slots = Mapping[Var, int]


@dataclass(frozen=True, slots=True)
class Language:
    """`emit(kernel, slots, table_vec4s)` writes a scheduled kernel; `render` one of the library's, which are of class
    `routine`, and its grid."""

    emit: Callable[[Kernel, Slots, int], KernelSource]
    routine: type[Routine]
    render: Callable[..., tuple[KernelSource, tuple[Expr, Expr, Expr]]]


def _emit_c(kernel: Kernel, slots: Slots, _: int) -> KernelSource:
    return wasm.emit(kernel, slots)


LANGUAGES: Mapping[str, Language] = MappingProxyType(
    {
        "wgsl": Language(wgsl.emit, TemplateRoutine, render),
        "c": Language(_emit_c, CRoutine, render_c),
    }
)
