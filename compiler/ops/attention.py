"""Attention over a cache, and what goes into it. Only these programs know how the cache is laid out.

A cache is [sequences, capacity, kv_heads, head_size]; the token of sequence s at position p lies in row p. Which rows
of a batch belong to which sequence and position is data (`sequences`, `positions`: i32[n]), so nothing else assumes
that slot = position.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..ir import Annotation, Atom, BlockBuilder, Operator, Shape, Tensor
from ..symbolic import Expr, as_int
from ..tir import (
    Literal,
    Load,
    Program,
    ProgramBuilder,
    Scalar,
    Select,
    Unary,
    as_scalar,
    less,
    less_equal,
    loaded_index,
)
from .arguments import Arguments, Attributes, count, dim, known, same, tensor, tensors
from .linear import softmax

# Far below any score, and finite: WGSL may assume that infinities do not occur.
MASKED = -1e30


def _ids(annotation: Annotation, what: str, tokens: Expr | None) -> None:
    """Refuses what is not one i32 a token. Raises ValueError."""
    same(dim(tensor(annotation, what, ndim=1, dtype="i32"), 0), tokens, f"tokens and {what}")


def _deduce_rope(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "x", "positions", "cosines", "sines")
    x = tensor(arguments[0], "x", ndim=3, dtype="f32")
    size = dim(x, 2)
    if size is not None and as_int(size % 2) != 0:
        raise ValueError(f"the head size must be an even number, not {size}")
    _ids(arguments[1], "positions", dim(x, 0))
    for annotation, what in zip(arguments[2:], ("cosines", "sines"), strict=True):
        table = tensor(annotation, what, ndim=2, dtype="f32")
        same(dim(table, 1), None if size is None else size // 2, f"columns of {what} and pairs of a head")
    return Tensor(x.shape, "f32", ndim=3)


def _lower_rope(arguments: Arguments, attributes: Attributes) -> Program:
    """Rotates pairs of a head's elements by an angle that depends on position and pair (arXiv 2104.09864).

    A pair is (2d, 2d + 1) if `interleaved`, else (d, d + head_size/2): files differ in which. The tables are
    [positions, head_size/2]: WGSL's own sine is inexact for large arguments.
    """
    x, positions, cosines, sines = tensors(arguments, "x", "positions", "cosines", "sines")
    shape = known(x, "x")
    size = shape[2]
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
    count(arguments, "cache", "new", "positions", "sequences")
    cache, new = tensor(arguments[0], "cache", ndim=4, dtype="f32"), tensor(arguments[1], "new", ndim=3, dtype="f32")
    same(dim(cache, 2), dim(new, 1), "heads of cache and new")
    same(dim(cache, 3), dim(new, 2), "head sizes of cache and new")
    _ids(arguments[2], "positions", dim(new, 0))
    _ids(arguments[3], "sequences", dim(new, 0))
    return Tensor(cache.shape, "f32", ndim=4)


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
        )
    )


def group_size(heads: Expr, kv_heads: Expr) -> int:
    """How many query heads share a key head. Raises ValueError unless it is a whole number."""
    q, kv = as_int(heads), as_int(kv_heads)
    if q is None or not kv or q % kv:
        raise ValueError(f"{heads} query heads cannot share {kv_heads} key heads")
    return q // kv


@dataclass(frozen=True, slots=True)
class ScoreRule:
    """Which keys a query sees, and how much: what the attributes of the attention operators say.

    `window`: only that many keys, the query's own the last one; 0: all up to its own. `softcap`: scores are bent to lie
    within +-softcap (arXiv 2408.00118); 0: they are not.
    """

    scale: float
    window: int
    softcap: float

    @staticmethod
    def of(attributes: Attributes) -> ScoreRule:
        """Reads `scale`, `window` and `softcap`. Raises ValueError for negative ones."""
        rule = ScoreRule(
            float(attributes["scale"]), int(attributes.get("window", 0)), float(attributes.get("softcap", 0.0))
        )
        if rule.window < 0 or rule.softcap < 0:
            raise ValueError(f"window and softcap cannot be negative: {rule.window}, {rule.softcap}")
        return rule

    def score(self, dot: Scalar, key: Expr, position: Load) -> Scalar:
        """The score from the dot product of a query at a position and a key; MASKED where it does not see the key."""
        score = dot * self.scale
        if self.softcap:
            score = Unary("tanh", score / self.softcap) * self.softcap
        if self.window:
            score = Select(less(position, as_scalar(key + self.window, "i32")), score, Literal(MASKED, "f32"))
        return Select(less_equal(key, position), score, Literal(MASKED, "f32"))


def _deduce_scores(arguments: Arguments, attributes: Attributes) -> Annotation:
    ScoreRule.of(attributes)
    count(arguments, "queries", "keys", "positions", "sequences", "the shape [length]")
    queries = tensor(arguments[0], "queries", ndim=3, dtype="f32")
    keys, length = tensor(arguments[1], "keys", ndim=4, dtype="f32"), arguments[4]
    if not isinstance(length, Shape) or length.ndim not in (None, 1):
        raise ValueError(f"the length must be a shape of one dimension, not {length}")
    same(dim(queries, 2), dim(keys, 3), "head sizes of queries and keys")
    _ids(arguments[2], "positions", dim(queries, 0))
    _ids(arguments[3], "sequences", dim(queries, 0))
    if queries.shape is None or keys.shape is None or length.dims is None:
        return Tensor(dtype="f32", ndim=3)
    group_size(queries.shape[1], keys.shape[2])
    return Tensor((queries.shape[1], queries.shape[0], length.dims[0]), "f32")


def _lower_scores(arguments: Arguments, attributes: Attributes) -> Program:
    """scores[h, i, j] of query q[i, h] and key k[sequence i, j], by the rule of the attributes."""
    queries, keys = known(arguments[0], "queries"), known(arguments[1], "keys")
    (length,) = known(arguments[4], "the length")
    group = group_size(queries[1], keys[2])
    b = ProgramBuilder("attention_scores")
    q, k = b.input("q", queries, "f32"), b.input("keys", keys, "f32")
    where, who = b.input("positions", queries[:1], "i32"), b.input("sequences", queries[:1], "i32")
    shape = (queries[1], queries[0], length)
    dot = b.reduce(
        "dot", shape, (queries[2],), lambda h, i, j, d: q[i, h, d] * k[loaded_index(who[i], keys[0]), j, h // group, d]
    )
    rule = ScoreRule.of(attributes)
    return b.finish(b.compute("scores", shape, lambda h, i, j: rule.score(dot[h, i, j], j, where[i])))


def _deduce_values(arguments: Arguments, _: Attributes) -> Annotation:
    count(arguments, "weights", "values", "sequences")
    weights = tensor(arguments[0], "weights", ndim=3, dtype="f32")
    values = tensor(arguments[1], "values", ndim=4, dtype="f32")
    _ids(arguments[2], "sequences", dim(weights, 1))
    if weights.shape is None or values.shape is None:
        return Tensor(dtype="f32", ndim=3)
    group_size(weights.shape[0], values.shape[2])
    return Tensor((weights.shape[1], weights.shape[0], values.shape[3]), "f32")


def _lower_values(arguments: Arguments, _: Attributes) -> Program:
    """out[i, h] = sum over j of weights[h, i, j] * values[sequence i, j]."""
    weights, values = known(arguments[0], "weights"), known(arguments[1], "values")
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
        )
    )


def _deduce_attention(arguments: Arguments, attributes: Attributes) -> Annotation:
    count(arguments, "queries", "keys", "values", "positions", "sequences", "the shape [length]")
    queries, keys, values, positions, sequences, length = arguments
    scores = _deduce_scores((queries, keys, positions, sequences, length), attributes)
    cache = tensor(values, "values", ndim=4, dtype="f32")
    for at, what in enumerate(("sequences", "capacities", "heads")):
        same(dim(tensor(keys, "keys"), at), dim(cache, at), f"{what} of keys and values")
    return _deduce_values((scores, values, sequences), {})


def _expand_attention(builder: BlockBuilder, args: tuple[Atom, ...], attributes: Attributes) -> Atom:
    queries, keys, values, positions, sequences, length = args
    scores = builder.op(attention_scores, queries, keys, positions, sequences, length, **attributes)
    return builder.op(attention_values, builder.op(softmax, scores), values, sequences)


rope = Operator("rope", _deduce_rope, _lower_rope)
kv_append = Operator("kv_append", _deduce_append, _lower_append, overwrites=(0,))
attention_scores = Operator("attention_scores", _deduce_scores, _lower_scores)
attention_values = Operator("attention_values", _deduce_values, _lower_values)
attention = Operator("attention", _deduce_attention, None, expand=_expand_attention)
"""Arguments: queries f32[n, heads, d], keys and values f32[sequences, capacity, kv_heads, d], positions and sequences
i32[n], and the shape [length], where length is above every position; attributes: see `ScoreRule`. The result is
[n, heads, d]."""
