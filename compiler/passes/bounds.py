"""What a function's requirements say about sizes, beyond the bounds of each variable alone."""

from __future__ import annotations

from collections.abc import Sequence

from ..symbolic import Expr, Var, lower_bound, substitute, upper_bound, variables


def bound_within(expr: Expr, requires: Sequence[tuple[Expr, Expr]]) -> int | None:
    """The most that an expression can be where `left <= right` holds for each requirement; None if nothing bounds it.

    With m + n <= 2048 and n <= 512, n*(m + n) is at most 512 * 2048, though m alone may be 2047: in terms of n and the
    sum, each has its own bound.
    """
    found = [upper_bound(expr)]
    for left, right in requires:
        low, high = lower_bound(left), upper_bound(right)
        if low is not None and high is not None and low > high:
            continue  # it never holds, and a variable's range cannot be empty
        total = Var(f"({left})", low, high)
        for variable in variables(left):
            rest = left - variable
            if variable not in variables(rest):
                found.append(upper_bound(substitute(expr, {variable: total - rest})))
    return min((bound for bound in found if bound is not None), default=None)
