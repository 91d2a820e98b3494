"""The nodes of a symbolic integer, and their operators.

An expression is a polynomial: a sum (`Add`) of products (`Mul`) of atoms, sorted, with integer coefficients. Atoms are
variables (`Var`), run-time integers (`Opaque`) and whatever is not polynomial: `FloorDiv`, `FloorMod`, `Min`, `Max`.

Build `Const`, `Var` and `Opaque` directly and everything else with operators and the functions of this package: those
keep the canonical form, so that `==` and `hash` compare polynomials. The constructors of the other nodes check nothing;
the classes are there for `match` and `isinstance`.

Division and remainder round down, as in Python. A rewrite keeps the value wherever the original is defined: an
expression that divides by zero may lose the division (`n//m - n//m` is 0), never the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, ClassVar, Final, Protocol, TypeAlias

Range: TypeAlias = tuple[int | None, int | None]
"""Inclusive lower and upper bound; None is infinite."""


class Expr:
    """An immutable symbolic integer in canonical form."""

    # `_content` identifies a node among those of its class. The other caches are unset until first used.
    __slots__ = ("_bounds", "_content", "_hash", "_key", "_variables")

    _content: tuple[Any, ...]
    _hash: int
    _key: str
    _bounds: Range
    _variables: tuple[Var, ...]

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Expr) or self.__class__ is not other.__class__:
            return False
        return self._hash == other._hash and self._content == other._content

    def __bool__(self) -> bool:
        raise TypeError(f"the truth of symbolic integer '{self}' is unknown; compare it, or use a prove_ function")

    def __str__(self) -> str:
        return printer.to_text(self)

    __repr__ = __str__

    # Immutable: a copy is the node itself. Hashes of strings differ between processes, so pickles rebuild the node.
    def __copy__(self) -> Expr:
        return self

    def __deepcopy__(self, memo: object) -> Expr:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._content

    @property
    def key(self) -> str:
        """A text that orders atoms the same way in every run."""
        try:
            return self._key
        except AttributeError:
            self._key = self._make_key()
            return self._key

    def _make_key(self) -> str:
        raise NotImplementedError

    def __add__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return polynomial.add(self, as_expr(other)) if _is_int(other) else NotImplemented
        return polynomial.add(self, other)

    def __radd__(self, other: int) -> Expr:
        return polynomial.add(self, as_expr(other)) if _is_int(other) else NotImplemented

    def __sub__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return polynomial.add(self, const(-index(other))) if _is_int(other) else NotImplemented
        return polynomial.subtract(self, other)

    def __rsub__(self, other: int) -> Expr:
        return polynomial.subtract(as_expr(other), self) if _is_int(other) else NotImplemented

    def __mul__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return polynomial.multiply(self, as_expr(other)) if _is_int(other) else NotImplemented
        return polynomial.multiply(self, other)

    def __rmul__(self, other: int) -> Expr:
        return polynomial.multiply(self, as_expr(other)) if _is_int(other) else NotImplemented

    def __neg__(self) -> Expr:
        return polynomial.multiply(self, MINUS_ONE)

    def __pos__(self) -> Expr:
        return self

    def __floordiv__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return division.floor_div(self, as_expr(other)) if _is_int(other) else NotImplemented
        return division.floor_div(self, other)

    def __rfloordiv__(self, other: int) -> Expr:
        return division.floor_div(as_expr(other), self) if _is_int(other) else NotImplemented

    def __mod__(self, other: Expr | int) -> Expr:
        if not isinstance(other, Expr):
            return division.floor_mod(self, as_expr(other)) if _is_int(other) else NotImplemented
        return division.floor_mod(self, other)

    def __rmod__(self, other: int) -> Expr:
        return division.floor_mod(as_expr(other), self) if _is_int(other) else NotImplemented


class Const(Expr):
    """An integer; equal to the `int` and of the same hash."""

    __slots__ = ("value",)
    __match_args__ = ("value",)

    def __init__(self, value: int) -> None:
        self.value: Final = value
        self._content = (value,)
        self._hash = hash(value)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Const):
            return self.value == other.value
        return isinstance(other, int) and self.value == other

    def __bool__(self) -> bool:
        return self.value != 0

    def _make_key(self) -> str:
        return str(self.value)


class Var(Expr):
    """A named integer in `lower..upper` (inclusive, None is infinite); equal if name and bounds are.

    `upper == lower - 1` is legal: the index of an empty loop, of which everything is true.
    Raises ValueError for any other empty range.
    """

    __slots__ = ("lower", "name", "upper")
    __match_args__ = ("name", "lower", "upper")

    def __init__(self, name: str, lower: int | None = 0, upper: int | None = None) -> None:
        if lower is not None and upper is not None and upper < lower - 1:
            raise ValueError(f"variable {name} has the empty range {lower}..{upper}; give bounds with lower <= upper")
        self.name: Final = name
        self.lower: Final = lower
        self.upper: Final = upper
        self._bounds = lower, upper
        self._content = (name, lower, upper)
        self._hash = hash(self._content)

    def _make_key(self) -> str:
        return f"{self.name}\0{self.lower}\0{self.upper}"


class Add(Expr):
    """A sum: at least two terms, products and atoms by falling degree, then at most one constant, not 0."""

    __slots__ = ("terms",)
    __match_args__ = ("terms",)

    def __init__(self, terms: tuple[Expr, ...]) -> None:
        self.terms: Final = terms
        self._content = terms
        self._hash = hash(("+", terms))

    def __reduce__(self) -> tuple[Any, ...]:
        return Add, (self.terms,)

    def _make_key(self) -> str:
        return f"({' + '.join([term.key for term in self.terms])})"


class Mul(Expr):
    """`coefficient` (not 0) times sorted atoms, repeated for powers; an atom alone is not wrapped."""

    __slots__ = ("coefficient", "factors")
    __match_args__ = ("coefficient", "factors")

    def __init__(self, coefficient: int, factors: tuple[Expr, ...]) -> None:
        self.coefficient: Final = coefficient
        self.factors: Final = factors
        self._content = (coefficient, factors)
        self._hash = hash(self._content)

    def _make_key(self) -> str:
        return f"{'*'.join([factor.key for factor in self.factors])}*{self.coefficient}"


class _Quotient(Expr):
    __slots__ = ("a", "b")
    __match_args__ = ("a", "b")
    _symbol: ClassVar[str]

    def __init__(self, a: Expr, b: Expr) -> None:
        self.a: Final = a
        self.b: Final = b
        self._content = (a, b)
        self._hash = hash((self._symbol, a, b))

    def _make_key(self) -> str:
        return f"~({self.a.key}{self._symbol}{self.b.key})"  # the tilde sorts variables before the other atoms


class FloorDiv(_Quotient):
    """`a // b`, rounded down; undefined where b is 0."""

    __slots__ = ()
    _symbol = "//"


class FloorMod(_Quotient):
    """`a % b`, with the sign of b; undefined where b is 0."""

    __slots__ = ()
    _symbol = "%"


class _Extremum(Expr):
    __slots__ = ("args",)
    __match_args__ = ("args",)
    _symbol: ClassVar[str]

    def __init__(self, args: tuple[Expr, ...]) -> None:
        self.args: Final = args
        self._content = args
        self._hash = hash((self._symbol, args))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.args,)

    def _make_key(self) -> str:
        return f"~{self._symbol}({', '.join([arg.key for arg in self.args])})"


class Min(_Extremum):
    """The least of at least two sorted, different arguments, none of them provably useless."""

    __slots__ = ()
    _symbol = "min"


class Max(_Extremum):
    """The greatest of at least two sorted, different arguments, none of them provably useless."""

    __slots__ = ()
    _symbol = "max"


class Payload(Protocol):
    """What `Opaque` wraps: hashable, equal if it is surely the same run-time integer, printed unambiguously."""

    def __hash__(self) -> int: ...

    def substitute(self, mapping: Mapping[Any, Expr | int], /) -> Payload: ...

    def variables(self) -> tuple[Var, ...]: ...


class Opaque(Expr):
    """An integer known at run time only, such as a loaded index, in `lower..upper`."""

    __slots__ = ("lower", "payload", "upper")
    __match_args__ = ("payload", "lower", "upper")

    def __init__(self, payload: Payload, lower: int | None = None, upper: int | None = None) -> None:
        self.payload: Final = payload
        self.lower: Final = lower
        self.upper: Final = upper
        self._bounds = lower, upper
        self._content = (payload, lower, upper)
        self._hash = hash(("opaque", self._content))

    def _make_key(self) -> str:
        return f"~{self.payload}\0{self.lower}\0{self.upper}"


def _is_int(value: object) -> bool:
    return hasattr(value, "__index__")


_SMALL = tuple(Const(value) for value in range(1025))


def const(value: int) -> Const:
    """A `Const`, shared for small values."""
    return _SMALL[value] if 0 <= value <= 1024 else Const(value)


ZERO: Final = const(0)
ONE: Final = const(1)
MINUS_ONE: Final = Const(-1)


def as_expr(value: int | Expr) -> Expr:
    """An expression from an expression or an integer (anything with `__index__`); else TypeError."""
    return value if isinstance(value, Expr) else const(index(value))


def as_int(expr: int | Expr) -> int | None:
    """The value of a constant, None for anything else."""
    if isinstance(expr, Const):
        return expr.value
    return None if isinstance(expr, Expr) else index(expr)


# At the end: these modules need the nodes above, and the operators above need them when called.
from . import division, polynomial, printer  # noqa: E402
