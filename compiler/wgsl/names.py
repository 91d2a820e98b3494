"""Names of a kernel as WGSL identifiers."""

from __future__ import annotations

import re

# Keywords, reserved words, predeclared names that a buffer might be called, and the names of the emitted code itself.
_WORDS = """
alias break case const const_assert continue continuing default diagnostic discard else enable false fn for if let loop
override requires return struct switch true var while
abstract active alignas alignof as asm async attribute auto await become cast catch class co_await co_return co_yield
coherent column_major common compile compile_fragment concept const_cast consteval constexpr constinit crate debugger
decltype delete demote do dynamic_cast enum explicit export extends extern external fallthrough filter final finally
friend from fxgroup get goto groupshared highp impl implements import inline instanceof interface layout lowp macro
match mediump meta mod module move mut mutable namespace new nil noexcept noinline nointerpolation non_coherent
noncoherent noperspective null nullptr of operator package packoffset partial pass patch pixelfragment precise precision
premerge private protected pub public readonly ref regardless register reinterpret_cast require resource restrict self
set shared sizeof smooth snorm static static_assert static_cast std step subroutine super target template this
thread_local throw trait try type typedef typeid typename typeof union unless unorm unsafe unsized use using varying
virtual volatile wgsl where with writeonly yield
array atomic bool f16 f32 i32 u32 vec2 vec3 vec4 mat2x2 mat3x3 mat4x4 ptr sampler texture read write read_write function
storage uniform workgroup
abs acos all any asin atan ceil clamp cos cross degrees distance dot exp exp2 floor fma fract length log log2 max min
mix modf normalize pow radians reflect refract round saturate select sign sin sinh smoothstep sqrt tan tanh transpose
trunc bitcast inverseSqrt half
main table half_to_f32 floor_div floor_mod group local
"""
_RESERVED = frozenset(_WORDS.split())


class Names:
    """An identifier for each name, kept readable; different names get different identifiers."""

    def __init__(self) -> None:
        self._given: dict[str, str] = {}
        self._used: set[str] = set()

    def of(self, name: str) -> str:
        """The identifier of a name."""
        if name not in self._given:
            wish = re.sub(r"[^A-Za-z0-9_]", "_", name)
            if not wish[:1].isalpha() or name in _RESERVED:
                wish = f"v_{wish}"
            wish = re.sub(r"__+", "_", wish)
            unique, count = wish, 1
            while unique in self._used:
                unique, count = f"{wish}_{count}", count + 1
            self._used.add(unique)
            self._given[name] = unique
        return self._given[name]
