"""A whole site around a toy model: it answers every message with one fixed text, by kernels that are written here.

It loads in a moment, so that the page's behaviour can be tested without a real model. It is a true bundle
(docs/bundle-format.md): the answer depends on the key-value cache, here a history of tokens; the text is the weight.
"""

from __future__ import annotations

import functools
import hashlib
import json
import shutil
import struct
from pathlib import Path
from typing import Any

from webrelax.compiler.vm import assemble, encode
from webrelax.compiler.wasm.build import build_module
from webrelax.packaging.bundle import FORMAT

WEB = Path(__file__).parents[1] / "web"
NAME = "Toy-1"
CHUNK = 16
START, END = 256, 257
ANSWER = (
    "A rainbow is sunlight, taken apart by rain 🌈\n\n"
    "Each drop bends **red** a little less than **blue**, so every colour leaves at its own angle:\n\n"
    "```\nred     42.4°\nviolet  40.7°\n```\n\nYou always see it with the sun behind you."
)
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HEADER = len("assistant\n")  # tokens between the control token and the answer

_TABLE = "@group(0) @binding(0) var<uniform> table: array<vec4<i32>, 1>;\n"
_APPEND = (
    _TABLE
    + """@group(0) @binding(1) var<storage, read> tokens: array<i32>;
@group(0) @binding(2) var<storage, read_write> history: array<i32>;
@compute @workgroup_size(16) fn main(@builtin(local_invocation_id) id: vec3u) {
  let i = i32(id.x);
  if (i < table[0].x) { history[table[0].y + i] = tokens[i]; }
}
"""
)
_LOGITS = (
    _TABLE
    + """@group(0) @binding(1) var<storage, read> history: array<i32>;
@group(0) @binding(2) var<storage, read> answer: array<i32>;
@group(0) @binding(3) var<storage, read_write> logits: array<f32>;
@compute @workgroup_size(258 / 2) fn main(@builtin(local_invocation_id) id: vec3u) {
  let last = table[0].x + table[0].y - 1;
  var start = last;
  while (start > 0 && history[start] != START) { start--; }
  let length = i32(arrayLength(&answer));
  let next = answer[max(last - start - HEADER, 0) % length];
  var labour = 0.5;
  for (var i = 0; i < LABOUR; i++) { labour = fract(labour * 1.7 + f32(next)); }
  for (var k = i32(id.x); k < 258; k += 129) { logits[k] = select(-f32(k) / 64.0, 9.0 + 0.001 * labour, k == next); }
}
"""
)

# The same for the CPU; the logits are computed by many workgroups, so that threads can share them.
GROUPS = 43
_C = """
#define KERNEL(name) __attribute__((export_name(#name))) void name( \\
    void *const *buffers, const int *table, int grid_x, int grid_y, int first, int last)
KERNEL(k0) {
  const int *tokens = buffers[0];
  int *history = buffers[1];
  for (int i = 0; i < table[0]; i++) history[table[1] + i] = tokens[i];
}
KERNEL(k1) {
  const int *history = buffers[0], *answer = buffers[1];
  float *logits = buffers[2];
  const int end = table[0] + table[1] - 1;
  int start = end;
  while (start > 0 && history[start] != START) start--;
  const int said = end - start - HEADER;
  const int next = answer[(said > 0 ? said : 0) % LENGTH];
  for (int group = first; group < last; group++) {
    float labour = 0.5f;
    for (int i = 0; i < LABOUR; i++) {
      labour = labour * 1.7f + (float)next;
      labour -= (float)(int)labour;
    }
    for (int k = group * 6; k < group * 6 + 6; k++) logits[k] = k == next ? 9.0f + 0.001f * labour : (float)k / -64.0f;
  }
}
"""


def build_toy_site(
    folder: Path,
    *,
    answer: str = ANSWER,
    context: int = 512,
    labour: int = 0,
    names: tuple[str, ...] = (NAME,),
    targets: tuple[str, ...] = ("webgpu", "wasm"),
) -> Path:
    """Writes the site to `folder`. `labour` slows each step down; `names` are copies of the one model."""
    for source in WEB.rglob("*"):
        if source.is_file() and (source.suffix in (".html", ".js", ".css", ".wasm") or source.name == "package.json"):
            target = folder / source.relative_to(WEB)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    (folder / "models.json").write_text(json.dumps({"models": names}))
    for name in names:
        _write_model(folder / "models" / name, name, answer, context, labour, targets)
    return folder


def _write_model(folder: Path, name: str, answer: str, context: int, labour: int, targets: tuple[str, ...]) -> None:
    folder.mkdir(parents=True)
    words = [*answer.encode(), END]
    weight = struct.pack(f"<{len(words)}i", *words)
    half = len(weight) // 8 * 4
    files: dict[str, bytes] = {
        "weights-000.bin": weight[:half],
        "weights-001.bin": weight[half:],
        "tokenizer.json": json.dumps(_tokenizer()).encode(),
        "tokenizer_config.json": json.dumps({"chat_template": TEMPLATE, "eos_token": "<|im_end|>"}).encode(),
        "generation_config.json": json.dumps({"eos_token_id": END}).encode(),
    }
    if "webgpu" in targets:
        code = _LOGITS.replace("START", str(START)).replace("HEADER", str(HEADER)).replace("LABOUR", str(labour))
        kernels = [
            _kernel("append", _APPEND, 16, ["read", "read_write"]),
            _kernel("answer", code, 129, ["read", "read", "read_write"]),
        ]
        files["kernels-f32.json"] = json.dumps({"kernels": kernels}).encode()
        files["module.bin"] = encode(assemble(_module(context, 1)))
    if "wasm" in targets:
        files["kernels-simd128.wasm"] = _wasm_kernels(len(words), labour)
        files["module-wasm.bin"] = encode(assemble(_module(context, GROUPS)))
    for path, content in files.items():
        (folder / path).write_bytes(content)
    entries = {path: {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in files.items()}
    manifest = _manifest(name, context, len(weight), half, targets) | {"files": entries}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def _kernel(name: str, wgsl: str, threads: int, access: list[str]) -> dict[str, Any]:
    return {"name": name, "entry": "main", "wgsl": wgsl, "workgroup": [threads, 1, 1], "access": access}


@functools.cache
def _wasm_kernels(length: int, labour: int) -> bytes:
    numbers = {"START": START, "HEADER": HEADER, "LENGTH": length, "LABOUR": labour}
    return build_module("".join(f"#define {name} {value}\n" for name, value in numbers.items()) + _C)


def _manifest(name: str, context: int, weight: int, half: int, targets: tuple[str, ...]) -> dict[str, Any]:
    parts = [
        {"file": "weights-000.bin", "offset": 0, "size": half, "at": 0},
        {"file": "weights-001.bin", "offset": 0, "size": weight - half, "at": half},
    ]
    program = {
        "buffers": [
            {"name": "history", "kind": "state", "size": 4 * context},
            {"name": "inputs", "kind": "input", "size": 576},
            {"name": "logits", "kind": "output", "size": 4 * 258},
            {"name": "answer", "kind": "weight", "size": weight},
        ],
        "binding_sets": [
            [[1, 0, 4 * CHUNK], [0, 0, 4 * context]],
            [[0, 0, 4 * context], [3, 0, weight], [2, 0, 4 * 258]],
        ],
        "table": {"row_bytes": 256, "used_bytes": 16, "rows": 1},
        "functions": {
            "prefill": _function(0, "n", [1, CHUNK], context),
            "decode": _function(1, 1, [1, 1], context),
        },
        "memory": {"storage": 0, "state": 4 * context, "weight": weight, "unplanned": 0},
    }
    profiles = {
        "webgpu": {"f32": {"features": [], "kernels": "kernels-f32.json", "module": "module.bin"}},
        "wasm": {"simd128": {"features": [], "kernels": "kernels-simd128.wasm", "module": "module-wasm.bin"}},
    }
    return {
        "format": FORMAT,
        "webrelax": "0.1.0",
        "name": name,
        "model": {"architecture": "toy", "context": context, "prefill_chunk": CHUNK, "vocab": 258},
        "weights": {"answer": {"size": weight, "parts": parts}},
        "targets": {target: {"profiles": profiles[target], **program} for target in targets},
    }


def _function(index: int, n: int | str, bounds: list[int], context: int) -> dict[str, Any]:
    arrays = [
        {"name": name, "dtype": "i32", "shape": [n], "buffer": 1, "offset": offset}
        for name, offset in (("tokens", 0), ("positions", 256), ("sequences", 512))
    ]
    return {
        "index": index,
        "arguments": [*arrays, {"name": "past", "shape": ["m"]}],
        "results": [{"name": "logits", "dtype": "f32", "shape": [1, 258], "buffer": 2, "offset": 0}],
        "variables": {"n": bounds, "m": [0, context - 1]},
        "slots": ["n", "m"],
        "captured": True,
    }


def _module(context: int, groups: int) -> str:
    body = f"""
        argument s0 a0
        argument s1 a3
        add s2 s0 s1
        const s3 {context}
        check_less_equal s2 s3 t0
        const s3 1
        const s4 {groups}
        dispatch k0 b0 s3 s3 s3
        dispatch k1 b1 s4 s3 s3
        return"""
    functions = "".join(
        f"\n    function {name} arguments=4 slots=5 table_slots=2{body}" for name in ("prefill", "decode")
    )
    return f'module row_slots=64 kernels=2 sets=2 buffers=4\n    string "the context is full"{functions}\n'


def _tokenizer() -> dict[str, Any]:
    """Bytes are tokens 0 to 255, by the printable stand-ins that byte-level BPE writes for them."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    vocab = {chr(byte if byte in printable else next(others)): byte for byte in range(256)}
    control = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "added_tokens": [
            {"id": START, "content": "<|im_start|>", **control},
            {"id": END, "content": "<|im_end|>", **control},
        ],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "vocab": vocab,
            "merges": [],
            "unk_token": None,
            "fuse_unk": False,
            "byte_fallback": False,
        },
    }
