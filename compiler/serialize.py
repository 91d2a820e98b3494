"""A lowered module and its kernels as JSON, and back: what `check` and `inspect` work from.

Equal nodes are stored once: {"nodes": [[class, field, ...], ...], "root": value}. A field is a number, a text,
true, false, null, {"ref": index of an earlier node}, {"tuple": [...]} or {"map": [[key, value], ...]}.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from . import ir, symbolic, tir
from .errors import WebrelaxError
from .executable import CompiledKernel
from .wgsl import KernelSource

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
    ir.If,
    ir.Place,
    ir.Binding,
    ir.Block,
    ir.Function,
    ir.Module,
    CompiledKernel,
    KernelSource,
)
# Names are qualified where two layers have a class of the same name.
_NAMES = {
    cls: f"{cls.__module__.rpartition('compiler.')[2].partition('.')[0]}.{cls.__name__}"
    for cls in (*_EXPRESSIONS, *_RECORDS)
}
_CLASSES = {name: cls for cls, name in _NAMES.items()}


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
        # 1, 1.0 and True are equal: literals are told apart by their text.
        key = (
            (name, repr(item))
            if isinstance(item, tir.Literal)
            else item
            if not isinstance(item, ir.Module)
            else id(item)
        )
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
    """Decodes what `to_json` gave. Raises WebrelaxError where the data are damaged."""
    try:
        nodes: list[Any] = []

        def decode(item: Any) -> Any:
            if not isinstance(item, dict):
                return item
            ((kind, content),) = item.items()
            if kind == "ref":
                return nodes[content]
            if kind == "tuple":
                return tuple(decode(i) for i in content)
            return {decode(k): decode(v) for k, v in content}

        for name, *content in data["nodes"]:
            nodes.append(_make(_CLASSES[name], [decode(part) for part in content]))
        return decode(data["root"])
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise WebrelaxError(f"the stored program is damaged ({error!r}): build the site again") from error


def _make(cls: Any, content: list[Any]) -> Any:
    if cls in (ir.Shape, ir.Tensor):
        record = object.__new__(cls)
        for f, value in zip(fields(cls), content, strict=True):
            object.__setattr__(record, f.name, value)
        return record
    return cls(*content)
