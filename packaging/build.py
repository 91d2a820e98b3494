"""`webrelax build`: a model file in, a static site out."""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Sequence
from fnmatch import fnmatch
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING

from ..compiler.emcc import find_emcc
from ..compiler.errors import WebrelaxError
from ..compiler.frontend import tokenizer_files
from ..compiler.frontend.export import export_decoder
from ..compiler.frontend.load import load_gguf
from .bundle import ModelInfo, write_bundle
from .chat import render_chat
from .site import check_output, install, workspace
from .targets import build_targets

if TYPE_CHECKING:
    from rich.progress import Progress

# What of web/ is not for the page.
_NOT_SERVED = ("*.py", "*.d.ts", "tsconfig.json", "__pycache__", ".*")


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax build --help`."""
    targets = args.targets or default_targets()
    if args.exact and "wasm" not in targets:
        raise WebrelaxError(
            "--exact is about the CPU, which this build is not for: leave it out, or add the target wasm"
        )
    site = build(
        args.model,
        args.output,
        args.name,
        args.context,
        args.prefill_chunk,
        args.force,
        quiet=False,
        targets=targets,
        exact=args.exact,
    )
    print(f"built {site}; look at it with: webrelax serve {args.output}")
    if "wasm" in targets:
        print(f"the CPU part, beside the weights: {_cpu_bytes(site) / 2**20:.2f} MiB")
    elif not args.targets:
        print("without a CPU part: install emscripten (emcc) and build again for visitors who have no WebGPU")
    return 0


def default_targets() -> tuple[str, ...]:
    """All that can be built here: the CPU's kernels need emcc."""
    return ("webgpu", "wasm") if find_emcc() else ("webgpu",)


def _cpu_bytes(model: Path) -> int:
    """The bytes that a page downloads for the CPU alone, with the largest of the profiles."""
    manifest = json.loads((model / "manifest.json").read_text("utf-8"))
    profiles = manifest["targets"]["wasm"]["profiles"].values()
    return max(sum(int(manifest["files"][p[part]]["size"]) for part in ("kernels", "module")) for p in profiles)


def build(
    model: Path,
    output: Path,
    name: str | None = None,
    context: int | None = None,
    prefill_chunk: int = 128,
    force: bool = False,
    quiet: bool = True,
    targets: Sequence[str] | None = None,
    exact: bool = False,
) -> Path:
    """Builds a site, or adds a model to one, and returns the model's folder. `targets`: see `default_targets`; `exact`:
    the CPU computes with activations as they are, not with 8-bit ones.

    When it fails, `output` stays as it was. Raises WebrelaxError.
    """
    title = _name(model.stem if name is None else name)
    file, loaded = load_gguf(model, context)
    texts = tokenizer_files(file)
    _check_template(texts["tokenizer_config.json"], model)
    chunk = min(prefill_chunk, loaded.context)
    with workspace(output) as scratch, _progress(quiet) as bar:
        staged = scratch / "site"
        page = copy_page(staged)
        check_output(output, title, page, force)
        compiling = bar.add_task("compiling", total=None, amount="")
        exported = export_decoder(loaded.model, loaded.context, chunk)
        builds = build_targets(exported.module, targets or default_targets(), exact)
        amount = ", ".join(f"{b.target.name}: {len(b.executable.kernels)} kernels" for b in builds)
        bar.update(compiling, description="compiled", amount=amount, total=1, completed=1)
        packing = bar.add_task("packing", total=builds[0].executable.bytes_of("weight"), amount="")
        fresh = staged / "models" / title
        fresh.mkdir(parents=True)
        info = ModelInfo(title, loaded.architecture, loaded.context, chunk, loaded.vocabulary)
        write_bundle(fresh, builds, info, loaded.weights, texts, lambda done: bar.advance(packing, done))
        size = f"{sum(p.stat().st_size for p in fresh.glob('weights-*')) / 2**20:.1f} MiB of weights"
        bar.update(packing, description="packed", amount=size)
        install(staged, output, title, page, force)
    return output / "models" / title


def _check_template(tokenizer_config: bytes, model: Path) -> None:
    """Refuses a chat template that fails on the plainest conversation: the page could not answer anything."""
    config = json.loads(tokenizer_config)
    if config.get("chat_template"):
        try:
            render_chat(config, [{"role": "user", "content": "Hello"}])
        except WebrelaxError as error:
            raise WebrelaxError(f"{model}: {error}; mend 'tokenizer.chat_template' in the file or remove it") from error


def _progress(quiet: bool) -> Progress:
    """Bars on a terminal's stderr; a task's `amount` is what it has done, in words."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:<9}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console, disable=quiet or not console.is_terminal)


def copy_page(site: Path) -> frozenset[str]:
    """Copies the page and the run time into the site; the paths of the files there, with slashes.

    Raises WebrelaxError where the VM was not built.
    """
    with as_file(files("webrelax.packaging.web")) as web:
        if not (web / "vm.wasm").exists():
            raise WebrelaxError(
                "the run time's vm.wasm is missing from the installation: run `make setup`, or install a release"
            )
        page = [p.relative_to(web) for p in web.rglob("*") if p.is_file()]
        page = [p for p in page if not any(fnmatch(part, unserved) for part in p.parts for unserved in _NOT_SERVED)]
        for path in page:
            (site / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(web / path, site / path)
        return frozenset(path.as_posix() for path in page)


def _name(text: str) -> str:
    """A folder name that is safe in a path and in a URL."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:80].strip("-.")
    if not name:
        raise WebrelaxError(f"{text!r} has no letter or digit to name the model by: give --name")
    return name
