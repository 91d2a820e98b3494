"""Attention over the cache: tiles of queries and keys for a prompt, parts of the keys for a single query."""

from __future__ import annotations

from importlib.resources import files

from ...ir import Atom, Shape, Tensor
from ...ops import attention
from ...ops.attention import MASKED, ScoreRule
from ...ops.attention_programs import (
    TINY,
    attention_program,
    combined_attention_program,
    partial_attention_program,
)
from ...passes.dispatch_library import Arguments, Attributes, Entry, LibraryBuilder
from ...symbolic import Expr, as_int, ceildiv, upper_bound
from ...target import Target
from ...tir import Program
from ..template import Launch, Parameter, TemplateRoutine

THREADS = 64
LARGEST_HEAD = 4 * THREADS
# Prefill: so many threads beside each other have 4 keys each, for heads up to and above 64.
KEY_LANES = (8, 16)
# Decode: the keys of a part; the heads that a workgroup computes at most; and how many vectors of them its threads hand
# to each other: 6 KiB.
SPLIT, MOST_HEADS, HANDED_ON = 256, 8, 384


def _is_supported(arguments: Arguments, attributes: Attributes, target: Target) -> bool:
    """Whether shapes are known where the kernels need them, and heads are whole vectors that fit in registers."""
    match arguments:
        case (
            Tensor(shape=(_, heads, size), dtype="f32"),
            Tensor(shape=(_, _, kv_heads, _), dtype="f32"),
            Tensor(dtype="f32"),
            *_,
            Shape(dims=(_,)),
        ):
            q, kv, d = (as_int(e) or 0 for e in (heads, kv_heads, size))
            fits = d % 4 == 0 and 0 < d <= LARGEST_HEAD and kv > 0 and q % kv == 0
            return fits and target.workgroup_memory >= 16 << 10 and target.workgroup_invocations >= THREADS
    return False


def _is_one_query(arguments: Arguments, attributes: Attributes, target: Target) -> bool:
    match arguments:
        case (Tensor(shape=(tokens, *_)), *_, Shape(dims=(length,))) if as_int(tokens) == 1:
            return upper_bound(length) is not None and _is_supported(arguments, attributes, target)
    return False


def _attend_in_parts(builder: LibraryBuilder, args: tuple[Atom, ...], attributes: Attributes) -> Atom:
    parts = builder.library(attention_partial, *args, **attributes, split=SPLIT)
    sums, means = (builder.get_item(parts, at, hint) for at, hint in enumerate(("sums", "means")))
    return builder.library(attention_combine, sums, means)


def _number(expr: Expr) -> int:
    number = as_int(expr)
    assert number is not None
    return number


def _sizes(program: Program) -> tuple[int, int, int]:
    """(heads, kv_heads, vectors of 4 in a head)."""
    _, heads, size = program.buffer("queries").shape
    return _number(heads), _number(program.buffer("keys").shape[2]), _number(size) // 4


def _parameters(program: Program, attributes: Attributes) -> dict[str, Parameter]:
    """What the kernels that read the cache have in common."""
    rule, (heads, kv_heads, size4) = ScoreRule.of(attributes), _sizes(program)
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "group": heads // kv_heads,
        "size4": size4,
        "capacity": program.buffer("keys").shape[1],
        "scale": rule.scale,
        "window": rule.window,
        "softcap": rule.softcap,
        "masked": MASKED,
        "tiny": TINY,
    }


def _launch_prefill(program: Program, attributes: Attributes) -> Launch:
    heads, kv_heads, size4 = _sizes(program)
    tokens, length = program.buffer("scores").shape[1:]
    key_lanes = KEY_LANES[size4 > 16]
    row_groups = THREADS // key_lanes
    sizes: dict[str, Parameter] = {"tokens": tokens, "length": length, "row_groups": row_groups, "key_lanes": key_lanes}
    grid = (ceildiv(tokens * (heads // kv_heads), 4 * row_groups), kv_heads, 1)
    return Launch({**_parameters(program, attributes), **sizes}, (THREADS, 1, 1), grid)


def _launch_partial(program: Program, attributes: Attributes) -> Launch:
    heads, kv_heads, size4 = _sizes(program)
    split = int(attributes["split"])
    together = max(h for h in range(1, MOST_HEADS + 1) if heads // kv_heads % h == 0)
    slices = max(1, min(THREADS, HANDED_ON // together) // size4)
    sizes = {"split": split, "threads": THREADS, "together": together, "slices": slices}
    grid = (program.buffer("sums").shape[0], heads // together, 1)
    return Launch({**_parameters(program, attributes), **sizes}, (THREADS, 1, 1), grid)


def _launch_combine(program: Program, attributes: Attributes) -> Launch:
    parts, heads, size = program.buffer("means").shape
    sizes: dict[str, Parameter] = {"parts": parts, "heads": _number(heads), "size4": _number(size) // 4}
    grid = (ceildiv(heads * size, 4 * THREADS), 1, 1)
    return Launch({**sizes, "masked": MASKED}, (THREADS, 1, 1), grid)


def _template(name: str) -> str:
    return files(__package__).joinpath(f"{name}.wgsl.jinja").read_text("utf-8")


attention_prefill = TemplateRoutine(
    "attention_prefill",
    attention_program,
    _template("attention_prefill"),
    _launch_prefill,
    ("queries", "keys", "cached", "out"),
)
attention_partial = TemplateRoutine(
    "attention_partial",
    partial_attention_program,
    _template("attention_partial"),
    _launch_partial,
    ("queries", "keys", "cached", "means"),
)
attention_combine = TemplateRoutine(
    "attention_combine",
    combined_attention_program,
    _template("attention_combine"),
    _launch_combine,
    ("means", "out"),
)

ATTENTION = (
    Entry(attention, (attention_partial, attention_combine), _is_one_query, _attend_in_parts),
    Entry(attention, (attention_prefill,), _is_supported),
)
