"""Minimum and maximum."""

from __future__ import annotations

from functools import lru_cache

from .expr import Const, Expr, Max, Min, as_expr
from .nonnegative import nonnegative
from .polynomial import CACHE_SIZE, subtract


def minimum(first: int | Expr, *others: int | Expr) -> Expr:
    """The least of the arguments."""
    return _minimum(tuple([as_expr(arg) for arg in (first, *others)]))


def maximum(first: int | Expr, *others: int | Expr) -> Expr:
    """The greatest of the arguments."""
    return _maximum(tuple([as_expr(arg) for arg in (first, *others)]))


@lru_cache(CACHE_SIZE)
def _minimum(args: tuple[Expr, ...]) -> Expr:
    kept: list[Expr] = []
    for arg in _sorted([inner for outer in args for inner in (outer.args if isinstance(outer, Min) else (outer,))]):
        if not any(nonnegative(subtract(arg, other)) for other in kept):
            kept = [*[other for other in kept if not nonnegative(subtract(other, arg))], arg]
    return kept[0] if len(kept) == 1 else Min(tuple(kept))


@lru_cache(CACHE_SIZE)
def _maximum(args: tuple[Expr, ...]) -> Expr:
    kept: list[Expr] = []
    for arg in _sorted([inner for outer in args for inner in (outer.args if isinstance(outer, Max) else (outer,))]):
        if not any(nonnegative(subtract(other, arg)) for other in kept):
            kept = [*[other for other in kept if not nonnegative(subtract(arg, other))], arg]
    return kept[0] if len(kept) == 1 else Max(tuple(kept))


def _sorted(args: list[Expr]) -> list[Expr]:
    return sorted(args, key=lambda arg: (isinstance(arg, Const), arg.key))
