"""Products with packed weights: activations become codes of 8 bits, and whole numbers are multiplied.

The weight's format is read from its `BlockFormat` alone. A group of activations has the size of a group of weights, and
its codes lie in the order in which the kernel unpacks the weight's.
"""

from __future__ import annotations

from ...ir import Atom, Tensor
from ...ops import linear
from ...ops.arguments import known
from ...passes.dispatch_library import Arguments, Attributes, Entry, LibraryBuilder
from ...quantize import BlockFormat, code_at, decoder, dequantize, group_values, packed_words, sections
from ...symbolic import Expr, as_int, ceildiv
from ...target import Target
from ...tir import MAX, Bitcast, Cast, Index, Literal, Program, ProgramBuilder, Scalar, Select, Unary, less
from ..template import CLaunch, CParameter, CRoutine, template

GROUP = 32
# Rows of a weight that a group computes: a multiple of those that the kernels compute at once, which are 4 at most.
ROWS, MOST_AT_ONCE = 16, 4
# A kernel's arrays take at most 192 KiB of a thread's stack, which has 256.
STACK = 192 << 10


def is_packed(arguments: Arguments, attributes: Attributes, target: Target) -> bool:
    """Whether the kernels know the structure of the weight's format, and its rows are not too long."""
    format: BlockFormat = attributes["format"]
    floats = all(type == "f16" for _, type in format.stores) and not format.super_group
    linear_codes = (format.bits, format.code) in ((4, "unsigned"), (8, "unsigned"), (8, "signed"))
    codes = format.group == GROUP and floats and linear_codes and not format.codebook
    plain = not format.group and format.code in ("f16", "bf16", "f32")
    columns = attributes["columns"]
    match arguments:
        case (Tensor(shape=(_, _), dtype="f32"), Tensor(dtype="u32")):
            return (codes or plain) and columns % 4 == 0 and 4 * MOST_AT_ONCE * columns <= STACK
    return False


def is_quantized(arguments: Arguments, attributes: Attributes, target: Target) -> bool:
    """Whether the weight is stored as whole numbers, in groups."""
    return is_packed(arguments, attributes, target) and attributes["format"].group == GROUP


def _multiply(builder: LibraryBuilder, args: tuple[Atom, ...], attributes: Attributes) -> Atom:
    x, weight = args
    quantized = builder.library(quantize_activations, x, streams=8 // attributes["format"].bits)
    parts = (builder.get_item(quantized, at, hint) for at, hint in enumerate(("codes", "scales", "sums")))
    (tokens, _) = known(x.annotation, "x")
    routine = quantized_vector if as_int(tokens) == 1 else quantized_matrix
    return builder.library(routine, *parts, weight, **attributes)


def element_at(place: Expr, streams: int) -> Expr:
    """The element of a group whose code stands at this place: of two streams, the even ones and then the odd ones."""
    each = GROUP // streams
    return place % each * streams + place // each


def quantize_program(arguments: Arguments, attributes: Attributes) -> Program:
    """x f32[n, k] to codes, four in a word u32[n, k/4], and of each group of 32 the scale and the sum, f32[n, k/32].

    A code is round(127 x / max |x|) of the group, an element about code * scale, and the sum that of those products.
    """
    n, columns = known(arguments[0], "x")
    streams = int(attributes["streams"])
    b = ProgramBuilder("quantize_activations")
    x = b.input("x", (n, columns), "f32")
    groups = (n, columns // GROUP)
    top = b.reduce("top", groups, (GROUP,), lambda i, g, k: Unary("abs", x[i, g * GROUP + k]), MAX)

    def code(i: Expr, k: Expr) -> Scalar:
        most = top[i, k // GROUP]
        inverse = Select(less(Literal(0.0, "f32"), most), Literal(127.0, "f32") / most, Literal(0.0, "f32"))
        return Unary("floor", x[i, k] * inverse + 0.5)

    def word(i: Expr, j: Expr) -> Scalar:
        places = (j % (GROUP // 4) * 4 + at for at in range(4))
        elements = [j // (GROUP // 4) * GROUP + element_at(place, streams) for place in places]
        parts = [(Bitcast("u32", Cast("i32", code(i, k))) & 255) << 8 * at for at, k in enumerate(elements)]
        return parts[0] | parts[1] | parts[2] | parts[3]

    codes = b.compute("codes", (n, columns // 4), word)
    scales = b.compute("scales", groups, lambda i, g: top[i, g] / 127.0)
    total = b.reduce("total", groups, (GROUP,), lambda i, g, k: code(i, g * GROUP + k))
    return b.finish(codes, scales, b.compute("sums", groups, lambda i, g: total[i, g] * scales[i, g]))


def quantized_program(arguments: Arguments, attributes: Attributes) -> Program:
    """y[i, o] = sum over k of x[i, k] * w[o, k], of activations as `quantize_program` gives them and a packed weight.

    An element of the weight is code * scale + bias, with the scale and the bias of its group: so a group's part of y is
    the sum of products of codes times both scales, and the bias times the group's sum.
    """
    format, rows, columns = attributes["format"], attributes["rows"], attributes["columns"]
    n = known(arguments[0], "codes")[0]
    groups, streams = (n, columns // GROUP), 8 // format.bits
    b = ProgramBuilder("quantized_linear")
    codes = b.input("codes", (n, columns // 4), "u32")
    scales = b.input("scales", groups, "f32")
    sums = b.input("sums", groups, "f32")
    weight = b.input("weight", (packed_words(format, rows, columns),), "u32")

    def activation(i: Expr, k: Expr) -> Scalar:
        place = k // GROUP * GROUP + k % GROUP % streams * (GROUP // streams) + k % GROUP // streams
        byte = codes[i, place // 4] << Cast("u32", Index(24 - place % 4 * 8))
        return Cast("f32", Bitcast("i32", byte) >> 24) * scales[i, k // GROUP]

    def scaled(o: Expr, k: Expr) -> Scalar:
        scale, _ = group_values(format, rows, columns, weight, o, k // GROUP)
        return code_at(format, weight, o * columns + k, 0) * scale

    def bias(o: Expr, g: Expr) -> Scalar:
        scale, minimum = group_values(format, rows, columns, weight, o, g)
        less_zero = scale * float(-format.zero)
        return less_zero if minimum is None else minimum + less_zero

    x, w = b.compute("x", (n, columns), activation), b.compute("w", (rows, columns), scaled)
    if not (format.has_minimum or format.zero):
        return b.finish(b.reduce("y", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k]))
    products = b.reduce("products", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k])
    biases = b.compute("bias", (rows, columns // GROUP), bias)
    rest = b.reduce("rest", (n, rows), groups[1:], lambda i, o, g: sums[i, g] * biases[o, g])
    return b.finish(b.compute("y", (n, rows), lambda i, o: products[i, o] + rest[i, o]))


def float_program(arguments: Arguments, attributes: Attributes) -> Program:
    """y[i, o] = sum over k of x[i, k] * w[o, k], of a packed weight."""
    rows, columns = attributes["rows"], attributes["columns"]
    n = known(arguments[0], "x")[0]
    b = ProgramBuilder("float_linear")
    x = b.input("x", (n, columns), "f32")
    weight = b.input("weight", (packed_words(attributes["format"], rows, columns),), "u32")
    w = b.compute("w", (rows, columns), decoder(attributes["format"], rows, columns, weight))
    return b.finish(b.reduce("y", (n, rows), (columns,), lambda i, o, k: x[i, k] * w[o, k]))


def _parameters(attributes: Attributes) -> dict[str, CParameter]:
    """`view` is the weight as linear.c sees it."""
    format: BlockFormat = attributes["format"]
    rows, columns = attributes["rows"], attributes["columns"]
    values = f"(const unsigned short *)(weight + {sections(format, rows, columns)[-1]})"
    fields = {
        "rows": rows,
        "columns": columns,
        "bits": format.bits,
        "zero": format.zero,
        "code": format.code.upper(),
        "has_minimum": int(format.has_minimum),
        "nibble": "kept(wasm_i8x16_splat(15))",
    }
    named = ", ".join(f".{name} = {value}" for name, value in fields.items())
    view = f"{{(const unsigned char *)weight, {values}, {named}}}"
    return {"view": view, "rows": rows, "each": ROWS, "columns": columns, "groups": columns // GROUP}


def _launch_quantize(program: Program, attributes: Attributes) -> CLaunch:
    n, columns = program.buffer("x").shape
    return CLaunch({"columns": columns, "streams": int(attributes["streams"])}, n)


def _launch_float(program: Program, attributes: Attributes) -> CLaunch:
    tokens = program.buffer("y").shape[0]
    sizes = {**_parameters(attributes), "tokens": tokens, "tile": 1 if as_int(tokens) == 1 else 2}
    return CLaunch(sizes, ceildiv(attributes["rows"], ROWS))


def _launch_vector(program: Program, attributes: Attributes) -> CLaunch:
    return CLaunch(_parameters(attributes), ceildiv(attributes["rows"], ROWS))


def _launch_matrix(program: Program, attributes: Attributes) -> CLaunch:
    tokens = program.buffer("y").shape[0]
    return CLaunch({**_parameters(attributes), "tokens": tokens}, ceildiv(attributes["rows"], ROWS))


quantize_activations = CRoutine(
    "quantize_activations", quantize_program, template("quantize_activations"), _launch_quantize
)
quantized_vector = CRoutine("quantized_vector", quantized_program, template("quantized_vector"), _launch_vector)
quantized_matrix = CRoutine("quantized_matrix", quantized_program, template("quantized_matrix"), _launch_matrix)
float_linear = CRoutine("float_linear", float_program, template("float_linear"), _launch_float)

QUANTIZED_LINEAR = (
    Entry(
        linear,
        (quantize_activations, quantized_vector, quantized_matrix),
        is_quantized,
        _multiply,
        operands=((1, dequantize),),
    ),
)
FLOAT_LINEAR = (Entry(linear, (float_linear,), is_packed, operands=((1, dequantize),)),)
