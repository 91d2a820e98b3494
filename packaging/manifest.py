"""What a manifest must be (docs/bundle-format.md): the form of its fields, and that they fit each other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Any

from ..compiler.target import TARGETS
from .bundle import FORMAT
from .schema import Each, Either, Whole

_COUNT = Whole(0)
_SIZE = Whole(1, 2**31 - 1)
_ARGUMENT = {
    "name": str,
    "dtype?": {"f32", "i32"},
    "shape": [Either(_COUNT, str)],
    "buffer?": _COUNT,
    "offset?": _COUNT,
}
_PART = {"file": str, "offset": _COUNT, "size": _COUNT, "at": _COUNT}
_TARGET = {
    "profiles": Each({"features": [str], "kernels": str, "module": str, "program": str}),
    "buffers": [{"name": str, "kind": {"storage", "state", "input", "output", "weight"}, "size": Whole(4, 2**32)}],
    "binding_sets": [[(_COUNT, _COUNT, Whole(4, 2**32))]],
    "functions": Each(
        {
            "index": _COUNT,
            "arguments": [_ARGUMENT],
            "results": [_ARGUMENT],
            "variables": Each((_COUNT, _COUNT)),
            "slots": [str],
            "captured": bool,
        }
    ),
    "memory": Each(_COUNT),
    "writes": [[_COUNT]],
}

HEAD = {"format": _COUNT}
MANIFEST = {
    "format": Whole(FORMAT, FORMAT),
    "name": str,
    "model": {"architecture": str, "context": _SIZE, "prefill_chunk": _SIZE, "vocab": _SIZE},
    "files": Each({"size": _COUNT, "sha256": str}),
    "weights": Each({"size": Whole(4, 2**32), "parts": [_PART]}),
    "targets": {"webgpu?": _TARGET, "wasm?": _TARGET},
}
KERNELS = {
    "kernels": [
        {
            "name": str,
            "entry": str,
            "wgsl": str,
            "workgroup": (_SIZE, _SIZE, _SIZE),
            "access": [{"read", "read_write"}],
        }
    ]
}
_STEP = {
    "about": str,
    "functions": Each(
        {
            **dict.fromkeys(("operators", "programs", "groups", "libraries", "bytes"), _COUNT),
            "repeat?": (_COUNT, _SIZE, _SIZE),
        }
    ),
    "programs": _COUNT,
    "storage": _COUNT,
}
_LAYER = {
    "count": _SIZE,
    "calls": [{"name": str, "does": str, "kind": str, "type": str, "reads": [str]}],
    "groups": [[str]],
    "reasons": Each(str),
    "beside": Each(str),
    "leaves": [str],
}
PROGRAM = {
    "program": {"nodes": list, "root": dict},
    "passes": Each(str),
    "unplanned": Each(_COUNT),
    "steps": Each(_STEP),
    "layers": Each(_LAYER),
}
TOKENIZER_CONFIG = {
    "chat_template?": str,
    "bos_token?": str,
    "eos_token?": str,
    "unk_token?": str,
    "pad_token?": str,
}
GENERATION_CONFIG = {
    "eos_token_id?": Either(_COUNT, [_COUNT]),
    "do_sample?": bool,
    "temperature?": float,
    "top_k?": _COUNT,
    "top_p?": float,
}

# What the engine gives to a step, sorted: name, element type ("None" for a shape), number of dimensions.
_ARGUMENTS = [("past", "None", 1), ("positions", "i32", 1), ("sequences", "i32", 1), ("tokens", "i32", 1)]


def for_target(manifest: dict[str, Any], target: str) -> dict[str, Any]:
    """The manifest with the fields of one of its targets beside the common ones."""
    return {**manifest, **manifest["targets"][target]}


def misfit(manifest: Any) -> str | None:
    """The first thing that does not fit in a manifest of the right form, None where all does."""
    return next(_misfits(manifest), None)


def _misfits(manifest: Any) -> Iterator[str]:
    files = manifest["files"]
    for name in files:
        if name in ("", ".", "..") or "/" in name or "\\" in name:
            yield f"the file name {name[:80]!r} leads elsewhere"
    for name, weight in manifest["weights"].items():
        if not _covered(weight, files):
            yield f"weights.{name[:80]} is not made of its parts"
    if not manifest["targets"]:
        yield "targets is empty"
    for name in manifest["targets"]:
        yield from (f"targets.{name}: {wrong}" for wrong in _target_misfits(for_target(manifest, name), name))


def _target_misfits(manifest: Any, target: str) -> Iterator[str]:
    alignment = TARGETS[target].offset_alignment
    weights, buffers, vocabulary = manifest["weights"], manifest["buffers"], manifest["model"]["vocab"]
    if not manifest["profiles"]:
        yield "profiles is empty"
    for at, buffer in enumerate(buffers):
        if buffer["size"] % 4:
            yield f"buffers[{at}] has an unusable value"
        elif buffer["kind"] == "weight" and weights.get(buffer["name"], {}).get("size") != buffer["size"]:
            yield f"buffers[{at}] is not one of the weights"
    for at, bindings in enumerate(manifest["binding_sets"]):
        for buffer, offset, size in bindings:
            if not _inside(buffers, buffer, offset, size) or offset % alignment:
                yield f"binding_sets[{at}] leads outside of a buffer"
    for name, function in manifest["functions"].items():
        yield from (f"functions.{name}: {wrong}" for wrong in _function_misfits(function, buffers))
    for name in ("prefill", "decode"):
        if not _is_step(manifest["functions"].get(name), vocabulary):
            yield f"functions.{name} is not a step of a language model"


def _covered(weight: Any, files: Any) -> bool:
    """Whether the parts follow each other, lie in their files, and make the weight."""
    end = 0
    for part in weight["parts"]:
        file = files.get(part["file"])
        if file is None or part["at"] != end or part["offset"] + part["size"] > file["size"]:
            return False
        end += part["size"]
    return bool(end == weight["size"])


def _inside(buffers: Any, buffer: int, offset: int, size: int) -> bool:
    return buffer < len(buffers) and offset + size <= buffers[buffer]["size"]


def _function_misfits(function: Any, buffers: Any) -> Iterator[str]:
    variables = function["variables"]
    if any(low > high for low, high in variables.values()):
        yield "variables have unusable bounds"
    for argument in (*function["arguments"], *function["results"]):
        unknown = [d for d in argument["shape"] if isinstance(d, str) and d not in variables]
        if unknown:
            yield f"{argument['name']} has a dimension that is no variable"
        elif "dtype" in argument:
            size = 4 * prod(d if isinstance(d, int) else variables[d][1] for d in argument["shape"])
            if not _inside(buffers, argument.get("buffer", len(buffers)), argument.get("offset", 0), size):
                yield f"{argument['name']} leads outside of a buffer"


def _is_step(function: Any, vocabulary: int) -> bool:
    """Whether the engine can call it: its arguments by name and element type, and the logits of one token."""
    if function is None or [(r["name"], r.get("dtype"), r["shape"]) for r in function["results"]] != [
        ("logits", "f32", [1, vocabulary])
    ]:
        return False
    types = sorted((a["name"], str(a.get("dtype")), len(a["shape"])) for a in function["arguments"])
    return types == _ARGUMENTS
