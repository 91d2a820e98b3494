"""Attention over a cache, and what goes into it. Only these programs know how the cache is laid out.

A cache is [sequences, capacity, kv_heads, head_size]; the token of sequence s at position p lies in row p. Which rows of a batch
belong to which sequence and position is data (`sequences`, `positions`: i32[n]), so nothing else assumes that slot = position.
"""

from __future__ import annotations

from ..ir import Annotation, Operator, Shape, Tensor
from ..symbolic import Expr, as_int
from ..tir import Literal, Program, ProgramBuilder, Scalar, Select, less_equal
from ..tir.scalar import loaded_index
from .arguments import Arguments, Attributes, known, rank, tensor, tensors

# Far below any score, and finite: WGSL may assume that infinities do not occur.
MASKED = -1e30


def _deduce_rope(arguments: Arguments, _: Attributes) -> Annotation:
    x, *_rest = tensors(arguments, "x", "positions", "cosines", "sines")
    rank(x, 3, "x")
    return x


def _lower_rope(arguments: Arguments, attributes: Attributes) -> Program:
    """Rotates pairs of a head's elements by an angle that depends on position and pair (arXiv 2104.09864).

    A pair is (2d, 2d + 1) if `interleaved`, else (d, d + head_size/2): files differ in which. The tables are
    [positions, head_size/2]: WGSL's own sine is inexact for large arguments.
    """
    x, positions, cosines, sines = tensors(arguments, "x", "positions", "cosines", "sines")
    shape = known(x, "x")
    size = as_int(shape[2])
    if size is None or size % 2:
        raise ValueError(f"the head size must be an even number, not {shape[2]}")
    half = size // 2
    b = ProgramBuilder("rope")
    source = b.input("x", shape, "f32")
    where = b.input("positions", known(positions, "positions"), "i32")
    cos, sin = b.input("cos", known(cosines, "cosines"), "f32"), b.input("sin", known(sines, "sines"), "f32")

    def element(i: Expr, h: Expr, d: Expr) -> Scalar:
        if attributes["interleaved"]:
            angle, partner, second = d // 2, d + 1 - 2 * (d % 2), less_equal(1, d % 2)
        else:
            angle, partner, second = d % half, (d + half) % size, less_equal(half, d)
        row = where[i]
        other = source[i, h, partner] * sin[row, angle]
        return source[i, h, d] * cos[row, angle] + Select(second, other, -other)

    return b.finish(b.compute("y", shape, element))


def _deduce_append(arguments: Arguments, _: Attributes) -> Annotation:
    cache, *_rest = tensors(arguments, "cache", "new", "positions", "sequences")
    rank(cache, 4, "cache")
    return cache


def _lower_append(arguments: Arguments, _: Attributes) -> Program:
    cache, new, positions, sequences = tensors(arguments, "cache", "new", "positions", "sequences")
    b = ProgramBuilder("kv_append")
    target = b.input("cache", known(cache, "cache"), "f32")
    source = b.input("new", known(new, "new"), "f32")
    where = b.input("positions", known(positions, "positions"), "i32")
    who = b.input("sequences", known(sequences, "sequences"), "i32")
    return b.finish(
        b.scatter(
            "appended",
            target,
            known(new, "new"),
            lambda i, h, d: (who[i], where[i], h, d),
            lambda i, h, d: source[i, h, d],
        )  # fmt: skip
    )


def _scores_shape(arguments: Arguments) -> tuple[tuple[Expr, ...], tuple[Expr, ...], Expr]:
    if len(arguments) != 5 or not isinstance(arguments[4], Shape):
        raise ValueError("takes queries, keys, positions, sequences and the shape [length]")
    queries, keys = tensor(arguments[0], "queries"), tensor(arguments[1], "keys")
    rank(queries, 3, "queries")
    rank(keys, 4, "keys")
    (length,) = known(arguments[4], "the length")
    return known(queries, "queries"), known(keys, "keys"), length


def group_size(heads: Expr, kv_heads: Expr) -> int:
    """How many query heads share a key head. Raises ValueError unless it is a whole number."""
    q, kv = as_int(heads), as_int(kv_heads)
    if q is None or kv is None or q % kv:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key heads")
    return q // kv


def _deduce_scores(arguments: Arguments, _: Attributes) -> Annotation:
    queries, keys, length = _scores_shape(arguments)
    group_size(queries[1], keys[2])
    return Tensor((queries[1], queries[0], length), "f32")


def _lower_scores(arguments: Arguments, attributes: Attributes) -> Program:
    """scores[h, i, j] = scale * q[i, h] . k[sequence i, j], masked where j is after position i."""
    queries, keys, length = _scores_shape(arguments)
    group = group_size(queries[1], keys[2])
    b = ProgramBuilder("attention_scores")
    q, k = b.input("q", queries, "f32"), b.input("keys", keys, "f32")
    where, who = b.input("positions", queries[:1], "i32"), b.input("sequences", queries[:1], "i32")
    shape = (queries[1], queries[0], length)
    dot = b.reduce(
        "dot", shape, (queries[2],), lambda h, i, j, d: q[i, h, d] * k[loaded_index(who[i], keys[0]), j, h // group, d]
    )
    scale = float(attributes["scale"])
    return b.finish(
        b.compute(
            "scores",
            shape,
            lambda h, i, j: Select(less_equal(j, where[i]), dot[h, i, j] * scale, Literal(MASKED, "f32")),
        )  # fmt: skip
    )


def _values_shape(arguments: Arguments) -> tuple[tuple[Expr, ...], tuple[Expr, ...]]:
    weights, values, _ = tensors(arguments, "weights", "values", "sequences")
    rank(weights, 3, "weights")
    rank(values, 4, "values")
    return known(weights, "weights"), known(values, "values")


def _deduce_values(arguments: Arguments, _: Attributes) -> Annotation:
    weights, values = _values_shape(arguments)
    return Tensor((weights[1], weights[0], values[3]), "f32")


def _lower_values(arguments: Arguments, _: Attributes) -> Program:
    """out[i, h] = sum over j of weights[h, i, j] * values[sequence i, j]."""
    weights, values = _values_shape(arguments)
    group = group_size(weights[0], values[2])
    b = ProgramBuilder("attention_values")
    p, v = b.input("weights", weights, "f32"), b.input("values", values, "f32")
    who = b.input("sequences", weights[1:2], "i32")
    shape = (weights[1], weights[0], values[3])
    return b.finish(
        b.reduce(
            "out",
            shape,
            weights[2:],
            lambda i, h, d, j: p[h, i, j] * v[loaded_index(who[i], values[0]), j, h // group, d],
        )  # fmt: skip
    )


rope = Operator("rope", _deduce_rope, _lower_rope)
kv_append = Operator("kv_append", _deduce_append, _lower_append, overwrites=(0,))
attention_scores = Operator("attention_scores", _deduce_scores, _lower_scores)
attention_values = Operator("attention_values", _deduce_values, _lower_values)
