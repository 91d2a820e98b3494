"""No pass knows a model, a format or a kernel by its name: with other names, everything is the same up to names."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from webrelax.compiler.executable import Executable
from webrelax.compiler.frontend.export import export_decoder
from webrelax.compiler.frontend.llama import Llama
from webrelax.compiler.ir import Module, print_module
from webrelax.compiler.pipeline import compile
from webrelax.compiler.quantize import FORMATS
from webrelax.compiler.wgsl.library import LIBRARY

from .relax.llama import CONFIG, CONTEXT
from .renaming import assert_same_but_for_names, other_module, rename_operators


def small_llama(format_name: str, called: str) -> Module:
    model = Llama(replace(CONFIG, feed_forward=64), CONTEXT)
    for name, parameter in model.named_parameters():
        if len(parameter.shape) == 2 and not name.startswith("rope."):
            parameter.format = replace(FORMATS[format_name], name=called)
    return export_decoder(model, CONTEXT, 8).module


def without_names(executable: Executable) -> dict[str, Any]:
    """What the device and the virtual machine get, but for texts."""
    return {
        "binding sets": executable.binding_sets,
        "buffers": [(b.kind, b.size) for b in executable.buffers],
        "code": [f.code for f in executable.bytecode.functions],
        "workgroups": [(k.source.workgroup, k.source.access, k.slots, k.merged) for k in executable.kernels],
        "captured": [f.captured for f in executable.functions.values()],
    }


@pytest.mark.parametrize("library", [LIBRARY, ()], ids=["library", "generated"])
@pytest.mark.parametrize("format_name", ["F32", "Q4_1"])
def test_no_pass_reads_a_name(monkeypatch: pytest.MonkeyPatch, format_name: str, library: Any) -> None:
    """Functions, parameters, values, weights, variables, operators, formats, programs, buffers, loops and routines."""
    plain = compile(small_llama(format_name, format_name), library=library)
    table = rename_operators(monkeypatch, library)
    module = other_module(small_llama(format_name, "anything"))
    assert not {*module.functions} & {*plain.functions}
    renamed = compile(module, library=table)

    assert list(plain.stages) == list(renamed.stages)
    for step in plain.stages:
        if step not in ("start", "inline_calls", "dispatch_library"):  # these print the format
            assert_same_but_for_names(*(print_module(e.stages[step]) for e in (plain, renamed)))
    assert without_names(plain) == without_names(renamed)
    for kernel, twin in zip(plain.kernels, renamed.kernels, strict=True):
        assert_same_but_for_names(kernel.source.text, twin.source.text)
        assert_same_but_for_names(str(kernel.grid), str(twin.grid))
    assert not {*plain.module.programs} & {*renamed.module.programs}
