"""Expressions as C text: that of WGSL, whose functions prelude.c has, but for types."""

from __future__ import annotations

from ..schedule.nodes import LANES
from ..tir import Scalar
from ..wgsl.expression import Expressions

TYPES = {
    "f32": "float",
    "i32": "int",
    "u32": "unsigned",
    "bool": "bool",
    "vec4": "vec4",
    "uvec4": "uvec4",
    "ivec4": "ivec4",
    "mat4": "mat4",
}


class CExpressions(Expressions):
    """Writes expressions in C with clang's vector types."""

    def _composite(self, dtype: str, parts: list[str]) -> str:
        if dtype == "mat4":
            return f"(mat4){{{{{', '.join(parts)}}}}}"
        return f"(({TYPES[dtype]})({parts[0]}))" if len(parts) == 1 else f"({TYPES[dtype]}){{{', '.join(parts)}}}"

    def _matrix_product(self, a: Scalar, b: Scalar) -> str:
        return f"product({self.scalar(a)}, {self.scalar(b)})"

    def _cast(self, dtype: str, text: str) -> str:
        return f"to_{dtype}({text})" if dtype in LANES else f"({TYPES[dtype]})({text})"

    def _bitcast(self, dtype: str, text: str) -> str:
        return f"bits_as_{dtype}({text})"

    def _constant(self, text: str) -> str:
        return text
