"""Merging programs stage by stage, on programs that no operator makes."""

from __future__ import annotations

import numpy as np

from webrelax.compiler.fusion import Part, merge
from webrelax.compiler.ir.verify import verify_program
from webrelax.compiler.symbolic import Expr, Var, as_expr
from webrelax.compiler.tir import Axis, Buffer, Handle, Program, ProgramBuilder, Stage
from webrelax.compiler.tir.interpreter import run

from .lowered import normal

FOUR = as_expr(4)
LOOP = Var("i0", 0, 3)
X, Y = Buffer("x", (FOUR,), "f32"), Buffer("y", (FOUR,), "f32")


def merged(*parts: Part, inputs: tuple[Buffer, ...] = (X,), results: tuple[Buffer, ...] = (Y,)) -> Program:
    program = merge("merged", parts, inputs, results)
    verify_program(program)
    return program


def pointwise(name: str, amount: float, extent: Expr | int = 4) -> Program:
    b = ProgramBuilder(name)
    x = b.input("x", (extent,), "f32")
    return b.finish(b.compute("y", (extent,), lambda i: x[i] * amount))


def part(program: Program, source: str, target: str, *symbols: Expr) -> Part:
    return Part(program, (source,), (target,), symbols)


def test_a_chain_of_pointwise_programs_is_one_stage() -> None:
    program = merged(part(pointwise("a", 2), "x", "t"), part(pointwise("b", 3), "t", "y"))
    assert str(program) == (
        "program merged(x: f32[4]) -> (y: f32[4]):\n    for i0 < 4:\n        y[i0] = ((x[i0] * 2.0) * 3.0)\n"
    )


def test_symbols_of_parts_are_replaced() -> None:
    n, m = Var("n"), Var("m")
    x, y = (Buffer(name, (m * 2,), "f32") for name in "xy")
    parts = [part(pointwise(name, 2, n), source, target, m * 2) for name, source, target in ("axt", "bty")]
    program = merged(*parts, inputs=(x,), results=(y,))
    assert program.symbols == (m,)
    values = normal(6)
    assert (run(program, [values], [3])[0] == values * 4).all()


def test_a_store_to_other_places_is_not_inlined() -> None:
    b = ProgramBuilder("shift")
    source = b.input("x", (4,), "f32")
    local = Buffer("t", (FOUR,), "f32")
    stages = (
        Stage(("t",), (Axis(LOOP, FOUR),), ((LOOP + 1) % 4,), (source[LOOP],)),
        Stage(("y",), (Axis(LOOP, FOUR),), (LOOP,), (Handle(local)[LOOP] + 0,)),
    )
    shift = Program("shift", (X,), (Y,), stages, (local,))
    program = merged(part(pointwise("a", 2), "x", "doubled"), part(shift, "doubled", "y"))
    values = normal(4)
    assert (run(program, [values])[0] == np.roll(values * 2, 1)).all()
    assert [stage.outputs for stage in program.stages] == [("t",), ("y",)]


def test_a_read_stays_before_the_write_to_what_it_reads() -> None:
    """The second result is what was there before the first one overwrote it."""
    b = ProgramBuilder("swap")
    state, new = b.input("s", (4,), "f32"), b.input("x", (4,), "f32")
    old = b.compute("old", (4,), lambda i: state[i] * 1)
    written = b.scatter("w", state, (4,), lambda i: (3 - i,), lambda i: new[i])
    swap = b.finish(written, b.compute("before", (4,), lambda i: old[i] + 0))
    s, w = Buffer("s", (FOUR,), "f32"), Buffer("w", (FOUR,), "f32")
    both = Part(swap, ("s", "doubled"), ("w", "y"), ())
    program = merged(part(pointwise("a", 2), "x", "doubled"), both, inputs=(s, X), results=(w, Y))
    state_before, values = normal(4), normal(4, seed=1)
    after, before = run(program, [state_before, values])
    assert (after == values[::-1] * 2).all()
    assert (before == state_before).all()


def test_what_serves_as_an_index_stays_in_memory() -> None:
    b = ProgramBuilder("pick")
    x, at = b.input("x", (4,), "f32"), b.input("at", (4,), "i32")
    moved = b.compute("moved", (4,), lambda i: at[3 - i])
    twice = b.compute("twice", (4,), lambda i: at[moved[i]])
    pick = b.finish(b.compute("y", (4,), lambda i: x[twice[i]]))
    ids = Buffer("ids", (FOUR,), "i32")
    program = merged(Part(pick, ("x", "ids"), ("y",), ()), inputs=(X, ids))
    assert [buffer.name for buffer in program.locals] == ["moved", "twice"]
    values, order = normal(4), np.array([2, 0, 3, 1], np.int32)
    assert (run(program, [values, order])[0] == values[order[order[::-1]]]).all()


def test_stages_that_nobody_needs_go() -> None:
    b = ProgramBuilder("wasteful")
    x = b.input("x", (4,), "f32")
    b.reduce("unused", (), (4,), lambda k: x[k])
    wasteful = b.finish(b.compute("y", (4,), lambda i: x[i]))
    program = merged(part(wasteful, "x", "y"))
    assert [stage.outputs for stage in program.stages] == [("y",)]
    assert program.locals == ()


def test_locals_of_different_parts_get_different_names() -> None:
    def summing(name: str) -> Program:
        b = ProgramBuilder(name)
        x = b.input("x", (4,), "f32")
        total = b.reduce("total", (), (4,), lambda k: x[k])
        return b.finish(b.compute("y", (4,), lambda i: x[i] - total[()]))

    program = merged(part(summing("a"), "x", "total_1"), part(summing("b"), "total_1", "y"))
    names = [buffer.name for buffer in program.locals]
    assert len(set(names)) == len(names)
    values = normal(4)
    expected = values - values.sum()
    np.testing.assert_allclose(run(program, [values])[0], expected - expected.sum(), rtol=1e-4, atol=1e-5)
