"""Fusion: case F1 (fig. 9) of Relax."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import FunctionBuilder, Operator, Tensor
from webrelax.compiler.symbolic import Expr, Var
from webrelax.compiler.tir import Cast, Index, Program, ProgramBuilder, Scalar

from ..fusion.lowered import stages
from ..ops.cases import Array, f32, module_of
from .figure import LENGTHS, check_text, check_values, dispatches, normal

N = Var("n", 1, 64)
ROWS, COLUMNS = 16, 64


def _lower_decode(_: Any, __: Any) -> Program:
    """A format of its own: 4-bit codes, 8 a word, around 7, and one f32 scale a group of 32."""
    b = ProgramBuilder("decode_q4")
    words = b.input("words", (ROWS, COLUMNS // 8), "u32")
    scales = b.input("scales", (ROWS, COLUMNS // 32), "f32")

    def element(r: Expr, k: Expr) -> Scalar:
        code = (words[r, k // 8] >> Cast("u32", Index(k % 8 * 4))) & 15
        return (Cast("f32", code) - 7) * scales[r, k // 32]

    return b.finish(b.compute("w", (ROWS, COLUMNS), element))


decode_q4 = Operator("decode_q4", lambda arguments, attributes: f32(ROWS, COLUMNS), _lower_decode)


def decoded(words: Array, scales: Array) -> Array:
    codes = words[:, :, None] >> np.arange(0, 32, 4, dtype=np.uint32) & 15
    values: Array = (codes.reshape(ROWS, COLUMNS).astype(np.float32) - 7) * np.repeat(scales, 32, axis=1)
    return values


@pytest.mark.parametrize("epilogue", [False, True], ids=["matmul", "matmul_relu"])
def test_f1_a_custom_decode_runs_inside_the_matmul(epilogue: bool) -> None:
    b = FunctionBuilder("f")
    x = b.param("x", f32(N, COLUMNS))
    words = b.param("words", Tensor((ROWS, COLUMNS // 8), "u32"))
    scales = b.param("scales", f32(ROWS, COLUMNS // 32))
    y = b.op(ops.linear, x, b.op(decode_q4, words, scales, hint="w"), hint="lv0")
    y = b.op(ops.relu, y, hint="lv1") if epilogue else y
    written, legalized, grouped, _, fused = stages(module_of(b.finish(y)))
    assert len(dispatches(legalized.functions["f"])) == 2 + epilogue
    assert len(dispatches(fused.functions["f"])) == 1
    # The decoded weight is in no memory: the only loop nest of its shape is the sum's own loads.
    (program,) = fused.programs.values()
    assert [buffer.name for buffer in program.locals] == (["linear"] if epilogue else [])
    programs = {"as written": written, "after legalize and fuse_ops": grouped, "after fuse_tir": fused}
    check_text(f"f1_decode_matmul{'_relu' if epilogue else ''}", programs)
    given = np.random.default_rng(0).integers(0, 2**32, (ROWS, COLUMNS // 8), dtype=np.uint32), normal(ROWS, 2)
    for n in LENGTHS:
        a = normal(n, COLUMNS)
        expected = a @ decoded(*given).T
        check_values(programs, "f", [a, *given], np.maximum(expected, 0) if epilogue else expected)
