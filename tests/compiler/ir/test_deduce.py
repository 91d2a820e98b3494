"""Forward deduction, calls from the signature alone (Relax, fig. 7), and what is ill-typed."""

from __future__ import annotations

import pytest

from webrelax.compiler import ops
from webrelax.compiler.ir import (
    Annotation,
    Block,
    Call,
    Callable,
    CallFunction,
    CallLibrary,
    CallTIR,
    Constant,
    GetItem,
    If,
    MakeTuple,
    MatchCast,
    Name,
    Object,
    Shape,
    ShapeValue,
    Tensor,
    Tuple,
    Value,
    call_result,
    deduce,
)
from webrelax.compiler.symbolic import Var

from ..ops.cases import f32, i32

N, M = Var("n"), Var("m")

# Relax, fig. 7: subfn(s: Shape([n, m])) -> Tensor((n*m,), "f32").
SIGNATURE = Callable((Shape((N, M)),), f32(N * M))
CALLS: list[tuple[Annotation, Annotation]] = [
    (Shape((N, 4)), f32(N * 4)),
    (Shape((3, 4)), f32(12)),
    (Shape((N + 1, 4)), f32((N + 1) * 4)),
    (Shape((M, N)), f32(M * N)),
    (Shape(ndim=2), Tensor(dtype="f32", ndim=1)),
    (Shape(), Tensor(dtype="f32", ndim=1)),
    (Object(), Tensor(dtype="f32", ndim=1)),
]


@pytest.mark.parametrize(("argument", "result"), CALLS)
def test_figure_7(argument: Annotation, result: Annotation) -> None:
    assert call_result(SIGNATURE, (argument,), "subfn") == result


@pytest.mark.parametrize(
    ("callee", "arguments", "message"),
    [
        (SIGNATURE, (), r"f takes 1 arguments, not 0"),
        (SIGNATURE, (f32(2, 3),), r"f expects Shape\(\[n, m\]\), not Tensor"),
        (SIGNATURE, (Shape((1, 2, 3)),), r"f expects Shape\(\[n, m\]\), not Shape\(\[1, 2, 3\]\)"),
        (Callable((f32(N),), Object()), (i32(N),), "not Tensor"),
        (Callable((f32(N),), Object()), (Tensor(ndim=2),), "not Tensor"),
        (Callable((f32(N), f32(N)), Object()), (f32(3), f32(4)), r"where n is 3, not Tensor\(\(4,\)"),
        (Callable((f32(N, N * 2),), Object()), (f32(3, 5),), r"where n\*2 is 6, not"),
        (Callable((f32(N), f32(N)), Object()), (f32(M), f32(M + 1)), "where n is m, not"),
        (Callable((f32(Var("s", 1, 8)),), Object()), (f32(9),), r"where s is 1\.\.8, not"),
        (Callable((f32(Var("s", 1, 8)),), Object()), (f32(N + 9),), r"where s is 1\.\.8, not"),
        (Callable((Tuple((Object(),)),), Object()), (Tuple(()),), "not Tuple"),
        (Callable((Tuple((f32(N), f32(3))),), Object()), (Tuple((f32(2), f32(2))),), "where 3 is 3, not"),
        (Callable((SIGNATURE,), Object()), (Callable((), Object()),), "not Callable"),
        (f32(3), (), r"f is no function, it is Tensor"),
    ],
)
def test_calls_that_cannot_be_right(callee: Annotation, arguments: tuple[Annotation, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call_result(callee, arguments, "f")


def test_what_is_unknown_is_left_to_the_run() -> None:
    two = Callable((f32(N), f32(N), Tensor(dtype="f32")), f32(N))
    assert call_result(two, (f32(M), f32(Var("k")), Object()), "f") == f32(M)
    # A coarse field of a tuple does not shift the dimensions that are compared.
    pair = Callable((Tuple((f32(2), f32(N))),), f32(N))
    assert call_result(pair, (Tuple((Tensor(ndim=1), f32(3))),), "f") == f32(3)
    assert call_result(Object(), (f32(3),), "f") == Object()


def name(annotation: Annotation) -> Name:
    return Name("v", annotation)


def block(annotation: Annotation) -> Block:
    return Block((), name(annotation))


FLAG = name(i32())
VALUES: list[tuple[Value, Annotation]] = [
    (name(f32(N)), f32(N)),
    (Constant("w", f32(3)), f32(3)),
    (ShapeValue((N * 1, N * 2)), Shape((N, N * 2))),
    (MakeTuple((name(f32(N)), ShapeValue((N,)))), Tuple((f32(N), Shape((N,))))),
    (MakeTuple(()), Tuple(())),
    (GetItem(name(Tuple((f32(N), Object()))), 0), f32(N)),
    (GetItem(name(Object()), 5), Object()),
    (MatchCast(name(Object()), f32(N)), f32(N)),
    (CallTIR("p", (), (f32(N),)), f32(N)),
    (CallTIR("p", (), (f32(N), i32(2))), Tuple((f32(N), i32(2)))),
    (CallLibrary("r", (), (f32(N),)), f32(N)),
    (CallFunction(name(SIGNATURE), (ShapeValue((N, N)),)), f32(N * N)),
    (If(FLAG, block(f32(N, 4)), block(f32(M, 4))), Tensor(dtype="f32", ndim=2)),
    (If(name(Tensor((1, 1), "i32")), block(f32(N)), block(f32(N))), f32(N)),
    (If(name(Object()), block(f32(N)), block(Shape())), Object()),
]


@pytest.mark.parametrize(("value", "annotation"), VALUES)
def test_values(value: Value, annotation: Annotation) -> None:
    assert deduce(value) == annotation


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Call(ops.add, (name(f32(2)), name(f32(3)))), "add: dimensions 2 and 3 are neither provably equal nor 1"),
        (GetItem(name(Tuple((Object(),))), 1), "v has 1 fields, there is no field 1"),
        (GetItem(name(Tuple((Object(),))), -1), "v has 1 fields, there is no field -1"),
        (GetItem(name(f32(3)), 0), "v is no tuple, it is Tensor"),
        (CallFunction(name(f32(3)), ()), "v is no function, it is Tensor"),
        (If(name(f32()), block(Object()), block(Object())), "the condition v must be one i32, not Tensor"),
        (If(name(i32(2)), block(Object()), block(Object())), "the condition v must be one i32, not Tensor"),
        (If(name(Shape()), block(Object()), block(Object())), "the condition v must be one i32, not Shape"),
    ],
)
def test_ill_typed_values(value: Value, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        deduce(value)
