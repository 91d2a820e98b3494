"""A lowered module and its kernels as JSON, and back: what `check` and `inspect` work from.

Equal nodes are stored once: {"nodes": [[class, field, ...], ...], "root": value}. A field is a number, a text,
true, false, null, {"ref": index of an earlier node}, {"tuple": [...]} or {"map": [[key, value], ...]}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from . import ir, quantize, symbolic, tir
from .errors import WebrelaxError
from .executable import CompiledKernel
from .source import KernelSource
from .tir.scalar import BINARY, COMPARE, UNARY

_EXPRESSIONS = (
    symbolic.Const,
    symbolic.Var,
    symbolic.Add,
    symbolic.Mul,
    symbolic.FloorDiv,
    symbolic.FloorMod,
    symbolic.Min,
    symbolic.Max,
    symbolic.Opaque,
)
_RECORDS = (
    tir.Literal,
    tir.Index,
    tir.Load,
    tir.Unary,
    tir.Binary,
    tir.Compare,
    tir.Select,
    tir.Cast,
    tir.Bitcast,
    tir.Buffer,
    tir.Axis,
    tir.Reducer,
    tir.Stage,
    tir.Program,
    ir.Object,
    ir.Shape,
    ir.Tensor,
    ir.Tuple,
    ir.Callable,
    ir.Name,
    ir.Constant,
    ir.ShapeValue,
    ir.FunctionRef,
    ir.CallTIR,
    ir.CallLibrary,
    ir.CallFunction,
    ir.MakeTuple,
    ir.GetItem,
    ir.MatchCast,
    ir.TensorToShape,
    ir.If,
    ir.Place,
    ir.Binding,
    ir.Block,
    ir.Function,
    ir.Module,
    CompiledKernel,
    KernelSource,
    quantize.BlockFormat,
)
# Names are qualified where two layers have a class of the same name.
_NAMES = {
    cls: f"{cls.__module__.rpartition('compiler.')[2].partition('.')[0]}.{cls.__name__}"
    for cls in (*_EXPRESSIONS, *_RECORDS)
}
_CLASSES = {name: cls for cls, name in _NAMES.items()}


# What a text in a field of this name may be.
_WORDS: dict[str, tuple[Any, ...]] = {
    "op": (*UNARY, *BINARY, *COMPARE),
    "type": (*tir.DTYPE_BYTES, "bool", "half"),
    "dtype": (*tir.DTYPE_BYTES, None),
}


def to_json(value: Any) -> dict[str, Any]:
    """Encodes a module, or a tuple of modules, kernels and programs. Raises TypeError for what was not lowered."""
    nodes: list[Any] = []
    known: dict[Any, int] = {}

    def encode(item: Any) -> Any:
        if item is None or isinstance(item, str | int | float | bool):
            return item
        if isinstance(item, tuple):
            return {"tuple": [encode(i) for i in item]}
        if isinstance(item, Mapping):
            return {"map": [[encode(k), encode(v)] for k, v in item.items()]}
        name = _NAMES.get(type(item))
        if name is None:
            raise TypeError(f"{type(item).__name__} cannot be stored: lower the module first")
        key = id(item) if isinstance(item, ir.Module) else item
        if key not in known:
            content = [encode(part) for part in _content(item)]
            known[key] = len(nodes)
            nodes.append([name, *content])
        return {"ref": known[key]}

    root = encode(value)
    return {"nodes": nodes, "root": root}


def _content(item: Any) -> tuple[Any, ...]:
    if is_dataclass(item):
        return tuple(getattr(item, f.name) for f in fields(item))
    content: tuple[Any, ...] = item.__reduce__()[1]
    return content


def from_json(data: Any) -> Any:
    """Decodes what `to_json` gave. Raises WebrelaxError where the data are damaged: a field has another type, too."""
    try:
        nodes: list[Any] = []

        def decode(item: Any) -> Any:
            if not isinstance(item, dict):
                return item
            ((kind, content),) = item.items()
            if kind == "ref":
                return nodes[range(len(nodes))[content]]
            if kind == "tuple":
                return tuple(decode(i) for i in content)
            return {decode(k): decode(v) for k, v in content}

        for name, *content in data["nodes"]:
            nodes.append(_make(_CLASSES[name], [decode(part) for part in content]))
        return decode(data["root"])
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise WebrelaxError(f"the stored program is damaged ({error!r}): build the site again") from error


def _make(cls: Any, content: list[Any]) -> Any:
    for value, (name, hint) in zip(content, _hints(cls).items(), strict=True):
        if not _is_a(value, hint) or (name in _WORDS and value not in _WORDS[name]):
            raise TypeError(f"the {name} of a {cls.__name__} is a {type(value).__name__}: {str(value)[:40]!r}")
    if cls in (ir.Shape, ir.Tensor):
        record = object.__new__(cls)
        for f, value in zip(fields(cls), content, strict=True):
            object.__setattr__(record, f.name, value)
        return record
    return cls(*content)


@cache
def _hints(cls: Any) -> dict[str, Any]:
    """The declared types of what `_content` gives."""
    if is_dataclass(cls):
        hints = get_type_hints(cls)
        return {f.name: hints[f.name] for f in fields(cls)}
    return {name: hint for name, hint in get_type_hints(cls.__init__).items() if name != "return"}


def _is_a(value: Any, hint: Any) -> bool:
    """Whether a value has a declared type."""
    kind, parts = get_origin(hint) or hint, get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_a(value, part) for part in parts)
    if kind is Any or getattr(kind, "_is_protocol", False):
        return True
    if kind is Literal:
        return value in parts
    if kind is tuple and isinstance(value, tuple):
        if parts[-1:] == (...,):
            return all(_is_a(item, parts[0]) for item in value)
        return len(value) == len(parts) and all(map(_is_a, value, parts))
    if kind is Mapping and isinstance(value, dict):
        return all(_is_a(k, parts[0]) and _is_a(v, parts[1]) for k, v in value.items())
    # A bool is no int here.
    return isinstance(value, kind) and (kind is bool or not isinstance(value, bool))
