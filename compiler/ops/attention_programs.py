"""Attention as single tensor programs: what the library's routines compute.

Unlike the operators that `attention` expands to, they do not have the scores as a result. A query that sees no key gets
zeros.
"""

from __future__ import annotations

from ..symbolic import Expr, as_expr, ceildiv, minimum
from ..tir import (
    MAX,
    Handle,
    Literal,
    Program,
    ProgramBuilder,
    Scalar,
    Select,
    Unary,
    exp,
    less,
    loaded_index,
    maximum,
)
from .arguments import Arguments, Attributes, known
from .attention import MASKED, ScoreRule, group_size

# Below any sum of weights that is not zero: the largest weight is 1.
TINY = 1e-30


def attention_program(arguments: Arguments, attributes: Attributes) -> Program:
    """The `attention` operator: maxima, sums and weighted sums of the scores, which stay local."""
    queries, keys = known(arguments[0], "queries"), known(arguments[1], "keys")
    (length,) = known(arguments[5], "the length")
    rule, group = ScoreRule.of(attributes), group_size(queries[1], keys[2])
    b = ProgramBuilder("attention")
    q, k, v, positions, sequences = _inputs(b, arguments)
    shape = (queries[1], queries[0], length)
    dot = b.reduce(
        "products",
        shape,
        queries[2:],
        lambda h, i, j, d: q[i, h, d] * k[loaded_index(sequences[i], keys[0]), j, h // group, d],
    )
    scores = b.compute("scores", shape, lambda h, i, j: rule.score(dot[h, i, j], j, positions[i]))
    top = b.reduce("top", shape[:2], shape[2:], lambda h, i, j: scores[h, i, j], MAX)
    weights = b.compute("weights", shape, lambda h, i, j: _weight(scores[h, i, j], top[h, i]))
    total = b.reduce("total", shape[:2], shape[2:], lambda h, i, j: weights[h, i, j])
    mixed = b.reduce(
        "mixed",
        queries,
        (length,),
        lambda i, h, d, j: weights[h, i, j] * v[loaded_index(sequences[i], keys[0]), j, h // group, d],
    )
    return b.finish(b.compute("out", queries, lambda i, h, d: mixed[i, h, d] / maximum(total[h, i], TINY)))


def partial_attention_program(arguments: Arguments, attributes: Attributes) -> Program:
    """Attention of one query over parts of `attributes["split"]` keys each.

    The results are [parts, heads] logarithms of the summed exponentials of the part's scores, and [parts, heads, d]
    its attention.
    """
    queries, keys = known(arguments[0], "queries"), known(arguments[1], "keys")
    (length,) = known(arguments[5], "the length")
    rule, group, split = ScoreRule.of(attributes), group_size(queries[1], keys[2]), int(attributes["split"])
    b = ProgramBuilder("attention_partial")
    q, k, v, positions, sequences = _inputs(b, arguments)
    first = as_expr(0)

    def row(s: Expr, j: Expr) -> Expr:
        """Inside the cache even where the last part goes beyond it: those keys are masked."""
        return minimum(s * split + j, keys[1] - 1)

    parts = ceildiv(length, split)
    shape = (parts, queries[1], as_expr(split))
    who = loaded_index(sequences[first], keys[0])
    dot = b.reduce("products", shape, queries[2:], lambda s, h, j, d: q[first, h, d] * k[who, row(s, j), h // group, d])
    scores = b.compute("scores", shape, lambda s, h, j: rule.score(dot[s, h, j], s * split + j, positions[first]))
    top = b.reduce("top", shape[:2], shape[2:], lambda s, h, j: scores[s, h, j], MAX)
    weights = b.compute("weights", shape, lambda s, h, j: _weight(scores[s, h, j], top[s, h]))
    total = b.reduce("total", shape[:2], shape[2:], lambda s, h, j: weights[s, h, j])
    mixed = b.reduce(
        "mixed", (parts, *queries[1:]), (split,), lambda s, h, d, j: weights[s, h, j] * v[who, row(s, j), h // group, d]
    )
    sums = b.compute("sums", shape[:2], lambda s, h: top[s, h] + Unary("log", maximum(total[s, h], TINY)))
    means = b.compute("means", (parts, *queries[1:]), lambda s, h, d: mixed[s, h, d] / maximum(total[s, h], TINY))
    return b.finish(sums, means)


def combined_attention_program(arguments: Arguments, _: Attributes) -> Program:
    """The attention [1, heads, d] over all parts, from both results of `partial_attention_program`."""
    parts, heads, size = known(arguments[1], "means")
    b = ProgramBuilder("attention_combine")
    sums, means = b.input("sums", (parts, heads), "f32"), b.input("means", (parts, heads, size), "f32")
    top = b.reduce("top", (heads,), (parts,), lambda h, s: sums[s, h], MAX)
    weights = b.compute("weights", (parts, heads), lambda s, h: exp(sums[s, h] - top[h]))
    total = b.reduce("total", (heads,), (parts,), lambda h, s: weights[s, h])
    mixed = b.reduce("mixed", (heads, size), (parts,), lambda h, d, s: weights[s, h] * means[s, h, d])
    return b.finish(b.compute("out", (1, heads, size), lambda i, h, d: mixed[h, d] / total[h]))


def _inputs(b: ProgramBuilder, arguments: Arguments) -> tuple[Handle, Handle, Handle, Handle, Handle]:
    queries, keys, values = (known(a, what) for a, what in zip(arguments, ("queries", "keys", "values"), strict=False))
    return (
        b.input("queries", queries, "f32"),
        b.input("keys", keys, "f32"),
        b.input("cached", values, "f32"),
        b.input("positions", queries[:1], "i32"),
        b.input("sequences", queries[:1], "i32"),
    )


def _weight(score: Scalar, top: Scalar) -> Scalar:
    """The weight of a key before all are divided by their sum: exactly 0 if it is masked."""
    return Select(less(score, Literal(MASKED / 2, "f32")), Literal(0.0, "f32"), exp(score - top))
