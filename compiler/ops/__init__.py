"""The operators: each one a shape rule and a lowering to a tensor program. `OPERATORS` is the whole table."""

from .attention import attention_scores, attention_values, kv_append, rope
from .elementwise import (
    add,
    divide,
    exp_of,
    gelu_tanh,
    maximum_of,
    multiply,
    negate,
    relu,
    sigmoid,
    silu,
    subtract,
    tanh,
)
from .linear import linear, rms_norm, row_sum, softmax
from .shape import concat, flat_index, flatten, last_row, product, reshape, take, transpose, unflatten

OPERATORS = {
    op.name: op
    for op in (
        add,
        attention_scores,
        attention_values,
        concat,
        divide,
        exp_of,
        flatten,
        gelu_tanh,
        kv_append,
        last_row,
        linear,
        maximum_of,
        multiply,
        negate,
        relu,
        reshape,
        rms_norm,
        rope,
        row_sum,
        sigmoid,
        silu,
        softmax,
        subtract,
        take,
        tanh,
        transpose,
    )
}

__all__ = [
    "OPERATORS",
    "add",
    "attention_scores",
    "attention_values",
    "concat",
    "divide",
    "exp_of",
    "flat_index",
    "flatten",
    "gelu_tanh",
    "kv_append",
    "last_row",
    "linear",
    "maximum_of",
    "multiply",
    "negate",
    "product",
    "relu",
    "reshape",
    "rms_norm",
    "rope",
    "row_sum",
    "sigmoid",
    "silu",
    "softmax",
    "subtract",
    "take",
    "tanh",
    "transpose",
    "unflatten",
]
