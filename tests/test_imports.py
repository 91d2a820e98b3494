"""Imports point one way, and the path from a configuration to WGSL and bytecode needs no numpy."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# Each room may import the rooms above its own line, and those beside it as long as no circle comes of it.
LAYERS = (
    {"errors"},
    {"emcc"},
    {"symbolic"},
    {"ir", "tir"},
    {"ops", "quantize"},
    {"target", "source"},
    {"frontend", "passes", "fusion", "schedule"},
    {"wgsl", "wasm", "vm"},
    {"executable"},
    {"codegen", "serialize"},
    {"pipeline"},
    {"native"},
    {"packaging"},
)
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}

# Where values are computed, or a device is driven: what may be imported there at the top of a file.
NEEDS_PACKAGES = {
    "compiler/*/interpreter*": {"numpy"},
    "compiler/quantize/*": {"numpy"},
    "compiler/frontend/gguf*": {"numpy"},
    "compiler/native/*": {"numpy", "tokenizers", "wasmtime", "wgpu"},
}
ALWAYS_THERE = sys.stdlib_module_names | {"jinja2"}

COMPILE_PATH = ("symbolic", "ir", "tir", "ops", "frontend", "quantize", "passes", "fusion", "schedule", "wgsl", "vm")


@dataclass(frozen=True)
class Import:
    """One import of one file: `target` is the dotted name, `lazy` where it runs in a function or for types only."""

    file: str
    line: int
    target: str
    lazy: bool

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.target}"


def imports_of(path: Path) -> Iterator[Import]:
    file = path.relative_to(ROOT).as_posix()
    package = ["webrelax", *path.relative_to(ROOT).parent.parts]

    def visit(node: ast.AST, lazy: bool) -> Iterator[Import]:
        match node:
            case ast.Import(names=names):
                yield from (Import(file, node.lineno, alias.name, lazy) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                base = (
                    [*package[: len(package) - level + 1], *([module] if module else [])] if level else [module or ""]
                )
                # `from . import a` names a module; `from .a import b` names what is in one.
                targets = [".".join(base)] if module else [".".join([*base, alias.name]) for alias in names]
                yield from (Import(file, node.lineno, target, lazy) for target in targets)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.If(test=ast.Name(id="TYPE_CHECKING")):
                lazy = True
        for child in ast.iter_child_nodes(node):
            yield from visit(child, lazy)

    yield from visit(ast.parse(path.read_text()), False)


def sources(*tops: str) -> list[Path]:
    return [path for top in tops for path in sorted((ROOT / top).rglob("*.py"))]


def room_of(target: str) -> str | None:
    """The room that a dotted name lies in: `webrelax.compiler.ir.printer` lies in `ir`. None outside the project."""
    match target.split("."):
        case ["webrelax", "compiler", room, *_]:
            return room
        case ["webrelax", "packaging", *_]:
            return "packaging"
        case _:
            return None


def room_of_file(path: Path) -> str | None:
    room = room_of(".".join(["webrelax", *path.relative_to(ROOT).with_suffix("").parts]))
    return None if room == "__init__" else room


ALL = [imported for path in sources("compiler", "packaging") for imported in imports_of(path)]


def between_rooms() -> Iterator[tuple[str, str, Import]]:
    for imported in ALL:
        source, target = room_of_file(ROOT / imported.file), room_of(imported.target)
        if source and target and source != target:
            yield source, target, imported


def test_each_room_has_a_place_in_the_order() -> None:
    rooms = {room_of_file(path) for path in sources("compiler", "packaging")} - {None}
    assert rooms - set(LEVEL) == set(), "give it a line in LAYERS"


def test_imports_point_one_way() -> None:
    wrong = [str(imported) for source, target, imported in between_rooms() if LEVEL[target] > LEVEL[source]]
    assert wrong == []


def test_rooms_import_each_other_in_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for source, target, _ in between_rooms():
        graph.setdefault(source, set()).add(target)
    TopologicalSorter(graph).prepare()  # raises CycleError, naming the circle


def test_imports_inside_the_project_are_relative() -> None:
    bare = {"webrelax", "compiler", "packaging"}
    absolute = [
        imported
        for path in sources("compiler", "packaging")
        for node in ast.walk(ast.parse(path.read_text()))
        for imported in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
        if imported.partition(".")[0] in bare
    ]
    assert absolute == []


def test_the_compiler_imports_the_standard_library_and_jinja2_alone() -> None:
    wrong = []
    for imported in ALL:
        top = imported.target.partition(".")[0]
        if not imported.file.startswith("compiler/") or top == "webrelax" or top in ALWAYS_THERE:
            continue
        allowed = {
            name for pattern, names in NEEDS_PACKAGES.items() if fnmatch(imported.file, pattern) for name in names
        }
        if top not in allowed and not (imported.lazy and top == "numpy"):
            wrong.append(str(imported))
    assert wrong == []


@pytest.mark.parametrize("package", COMPILE_PATH)
def test_the_compile_path_loads_without_numpy(package: str) -> None:
    code = f"import sys; sys.modules['numpy'] = None; import webrelax.compiler.{package}"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
