"""Attention over the cache: a tile of tokens with the heads that share keys, or one head of a single token."""

from __future__ import annotations

from ...ir import Tensor
from ...ops import attention
from ...ops.attention import MASKED, ScoreRule
from ...ops.attention_programs import TINY, attention_program
from ...passes.dispatch_library import Arguments, Attributes, Entry
from ...symbolic import Expr, as_int, ceildiv
from ...target import Target
from ...tir import Program
from ..template import CLaunch, CRoutine, template

# Queries that a group computes at most, unless more heads share a key head; and the largest head.
MOST_QUERIES, LARGEST_HEAD = 12, 512


def _is_supported(arguments: Arguments, attributes: Attributes, target: Target) -> bool:
    """Whether the heads are known, and are whole vectors."""
    match arguments:
        case (
            Tensor(shape=(_, heads, size), dtype="f32"),
            Tensor(shape=(_, _, kv_heads, _), dtype="f32"),
            Tensor(dtype="f32"),
            *_,
        ):
            q, kv, d = (as_int(e) or 0 for e in (heads, kv_heads, size))
            return d % 4 == 0 and 0 < d <= LARGEST_HEAD and kv > 0 and q % kv == 0 and q // kv <= 4 * MOST_QUERIES
    return False


def _launch(program: Program, attributes: Attributes) -> CLaunch:
    tokens, heads, size = program.buffer("queries").shape
    _, capacity, kv_heads, _ = program.buffer("keys").shape
    rule, group = ScoreRule.of(attributes), _number(heads) // _number(kv_heads)
    single = as_int(tokens) == 1
    # One token's key heads alone are too few to share among threads.
    together = 1 if single else group
    tile = 1 if single else max(1, MOST_QUERIES // group)
    parts = _number(heads) // together
    return CLaunch(
        {
            "heads": heads,
            "kv_heads": kv_heads,
            "size": size,
            "capacity": capacity,
            "length": program.buffer("scores").shape[2],
            "window": rule.window,
            "queries": min(2, tile * together),
            "scale": rule.scale,
            "softcap": rule.softcap,
            "masked": MASKED,
            "tiny": TINY,
            "most_queries": tile * together,
            "tokens": tokens,
            "tile": tile,
            "together": together,
            "parts": parts,
        },
        ceildiv(tokens, tile) * parts,
    )


def _number(expr: Expr) -> int:
    number = as_int(expr)
    assert number is not None
    return number


attention_tile = CRoutine("attention_tile", attention_program, template("attention"), _launch)

ATTENTION = (Entry(attention, (attention_tile,), _is_supported),)
