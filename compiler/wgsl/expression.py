"""Expressions as WGSL text."""

from __future__ import annotations

import struct

from ..schedule.nodes import Component, Dot, Element, Lane, Local, Matrix, MatrixProduct, Vector
from ..symbolic import (
    Add,
    Const,
    Expr,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mul,
    Opaque,
    Var,
    as_int,
    lower_bound,
)
from ..tir import Binary, Bitcast, Cast, Compare, Index, Literal, Load, Scalar, Select, Unary
from .names import Names

TYPES = {
    "f32": "f32",
    "i32": "i32",
    "u32": "u32",
    "bool": "bool",
    "vec4": "vec4<f32>",
    "uvec4": "vec4<u32>",
    "ivec4": "vec4<i32>",
    "mat4": "mat4x4<f32>",
}
_INFIX = {"add": "+", "sub": "-", "mul": "*", "div": "/", "and": "&", "or": "|", "xor": "^", "shl": "<<", "shr": ">>"}
_COMPARE = {"lt": "<", "le": "<=", "eq": "==", "ne": "!="}
_FUNCTION = {"rsqrt": "inverseSqrt", "max": "max", "min": "min", "pow": "pow"}


class Expressions:
    """Writes expressions and remembers the helper functions and the constant vectors that they use."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.helpers: set[str] = set()
        self.constants: dict[str, str] = {}

    def index(self, expr: Expr) -> str:
        """An i32 expression."""
        return self._index(expr)[0]

    def scalar(self, node: Scalar) -> str:
        """A value, without outer parentheses where it is no operand."""
        text = self._scalar(node)
        return text[1:-1] if isinstance(node, Binary | MatrixProduct) and text.startswith("(") else text

    # --- integers: (text, whether it can stand as an operand of * without parentheses)

    def _index(self, expr: Expr) -> tuple[str, bool]:
        match expr:
            case Const(value):
                return (str(value), True) if value >= 0 else (_negative(value), True)
            case Var(name):
                return self._names.of(name), True
            case Opaque(payload):
                assert isinstance(payload, Scalar)
                return self._scalar(payload), True
            case Add(terms):
                return self._sum(terms), False
            case Mul(coefficient, factors):
                parts = [self._operand(f) for f in factors]
                if coefficient != 1:
                    parts.append(str(coefficient) if coefficient > 0 else _negative(coefficient))
                return " * ".join(parts), True
            case FloorDiv(a, b):
                return self._division(a, b, remainder=False), True
            case FloorMod(a, b):
                return self._division(a, b, remainder=True), True
            case Min(args):
                return self._call("min", args), True
            case Max(args):
                return self._call("max", args), True
        raise TypeError(f"not an index: {expr!r}")

    def _operand(self, expr: Expr) -> str:
        text, simple = self._index(expr)
        return text if simple and not isinstance(expr, Mul) else f"({text})"

    def _sum(self, terms: tuple[Expr, ...]) -> str:
        text = ""
        for term in terms:
            negative = (isinstance(term, Const) and term.value < 0) or (isinstance(term, Mul) and term.coefficient < 0)
            if negative and text:
                text += f" - {self._index(-term)[0]}"
            else:
                text += f"{' + ' if text else ''}{self._index(term)[0]}"
        return text

    def _division(self, a: Expr, b: Expr, *, remainder: bool) -> str:
        divisor = as_int(b)
        if divisor is not None and divisor > 0 and divisor & (divisor - 1) == 0:
            # Shifts and masks round down, whatever the sign.
            operand = self._operand(a)
            if remainder:
                return f"({operand} & {divisor - 1})"
            return f"({operand} >> {divisor.bit_length() - 1}u)"
        low_a, low_b = lower_bound(a), lower_bound(b)
        if low_a is not None and low_a >= 0 and low_b is not None and low_b >= 0:
            return f"({self._operand(a)} {'%' if remainder else '/'} {self._operand(b)})"
        self.helpers.add("floor_mod" if remainder else "floor_div")
        return f"{'floor_mod' if remainder else 'floor_div'}({self.index(a)}, {self.index(b)})"

    def _call(self, function: str, args: tuple[Expr, ...]) -> str:
        text = self.index(args[0])
        for arg in args[1:]:
            text = f"{function}({text}, {self.index(arg)})"
        return text

    # --- values

    def _scalar(self, node: Scalar) -> str:
        match node:
            case Literal(value, dtype):
                return literal(value, dtype)
            case Index(expr):
                text, simple = self._index(expr)
                return text if simple else f"({text})"
            case Local(name):
                return self._names.of(name)
            case Element(array, index):
                return f"{self._names.of(array)}[{self.index(index)}]"
            case Load(buffer, (index,)):
                return f"{self._names.of(buffer)}[{self.index(index)}]"
            case Vector(parts):
                different = parts[:1] if len(set(parts)) == 1 else parts
                text = self._composite(node.dtype, list(map(self.scalar, different)))
                return self._constant(text) if all(isinstance(p, Literal) for p in different) else text
            case Matrix(columns):
                return self._composite("mat4", list(map(self.scalar, columns)))
            case MatrixProduct(a, b):
                return self._matrix_product(a, b)
            case Dot(a, b):
                return f"dot({self._scalar(a)}, {self._scalar(b)})"
            case Component(vector, index):
                return f"{self._scalar(vector)}[{self.index(index)}]"
            case Lane(vector, at):
                return f"{self._scalar(vector)}.{'xyzw'[at]}"
            case Unary(op, x):
                return self._unary(op, x)
            case Binary("add" | "sub" | "mul" | "div" as op, a, Vector(parts)) if len(set(parts)) == 1:
                return f"({self._scalar(a)} {_INFIX[op]} {self._scalar(parts[0])})"
            case Binary(op, a, b) if op in _INFIX:
                return f"({self._scalar(a)} {_INFIX[op]} {self._scalar(b)})"
            case Binary(op, a, b):
                return f"{_FUNCTION[op]}({self.scalar(a)}, {self.scalar(b)})"
            case Compare(op, a, b):
                return f"({self._scalar(a)} {_COMPARE[op]} {self._scalar(b)})"
            case Select(condition, yes, no):
                return f"select({self.scalar(no)}, {self.scalar(yes)}, {self.scalar(condition)})"
            case Cast(dtype, x):
                return self._cast(dtype, self.scalar(x))
            case Bitcast("half", x):
                self.helpers.add("half_to_f32")
                return f"half_to_f32({self.scalar(x)})"
            case Bitcast(dtype, x):
                return self._bitcast(dtype, self.scalar(x))
        raise TypeError(f"not a scalar expression: {node!r}")

    # --- where languages differ

    def _composite(self, dtype: str, parts: list[str]) -> str:
        """A vector of four values, or of one that is in all places; a matrix of four columns."""
        return f"{TYPES[dtype]}({', '.join(parts)})"

    def _matrix_product(self, a: Scalar, b: Scalar) -> str:
        return f"({self._scalar(a)} * {self._scalar(b)})"

    def _cast(self, dtype: str, text: str) -> str:
        return f"{TYPES[dtype]}({text})"

    def _bitcast(self, dtype: str, text: str) -> str:
        return f"bitcast<{TYPES[dtype]}>({text})"

    def _constant(self, text: str) -> str:
        """The name of a constant."""
        if text not in self.constants:
            self.constants[text] = self._names.of(f"K {len(self.constants)}")
        return self.constants[text]

    def _unary(self, op: str, x: Scalar) -> str:
        match op:
            case "neg":
                return f"(-{self._scalar(x)})"
            case "exp":
                # exp(-104) is 0 in f32 and exp(88) is finite: no infinities, which WGSL may assume away.
                return f"exp(clamp({self.scalar(x)}, -104.0f, 88.0f))"
            case "tanh":
                return f"tanh(clamp({self.scalar(x)}, -15.0f, 15.0f))"
        return f"{_FUNCTION.get(op, op)}({self.scalar(x)})"


def literal(value: int | float, dtype: str) -> str:
    """A constant, exactly."""
    match dtype:
        case "f32":
            (rounded,) = struct.unpack("<f", struct.pack("<f", value))
            text = f"{rounded!r}f"
            return text if rounded >= 0 else f"({text})"
        case "u32":
            return f"{int(value)}u"
        case "i32":
            return str(int(value)) if value >= 0 else _negative(int(value))
        case "bool":
            return "true" if value else "false"
    raise TypeError(f"no literal of type {dtype}")


def _negative(value: int) -> str:
    return f"({value})"
