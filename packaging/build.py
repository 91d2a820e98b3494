"""`webrelax build`: a model file in, a static site out."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from importlib.resources import as_file, files
from pathlib import Path

from ..compiler.errors import WebrelaxError
from ..compiler.frontend import tokenizer_files
from ..compiler.frontend.export import export_decoder
from ..compiler.frontend.load import load_gguf
from ..compiler.pipeline import compile
from ..compiler.target import WEBGPU
from .bundle import ModelInfo, write_bundle

# What of web/ is not for the page.
_NOT_SERVED = ("*.py", "*.d.ts", "tsconfig.json", "package.json", "__pycache__", ".*")


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax build --help`."""
    site = build(args.model, args.output, args.name, args.context, args.prefill_chunk, args.force, quiet=False)
    print(f"built {site}; look at it with: webrelax serve {args.output}")
    return 0


def build(
    model: Path,
    output: Path,
    name: str | None = None,
    context: int | None = None,
    prefill_chunk: int = 128,
    force: bool = False,
    quiet: bool = True,
) -> Path:
    """Builds a site, or adds a model to one, and returns the model's folder.

    Nothing is left in `output` when it fails: files are written beside it and moved there at the end.
    Raises WebrelaxError.
    """
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

    file, loaded = load_gguf(model, context)
    title = _name(name or model.stem)
    folder = output / "models" / title
    if folder.exists() and not force:
        raise WebrelaxError(f"{folder} exists already: give another --name, or --force to replace it")
    if output.exists() and not output.is_dir():
        raise WebrelaxError(f"{output} is a file: give a folder with -o")
    texts = tokenizer_files(file)
    chunk = min(prefill_chunk, loaded.context)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(binary_units=True), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        compiling = bar.add_task("compiling", total=None)
        exported = export_decoder(loaded.model, loaded.context, chunk)
        executable = compile(exported.module, WEBGPU)
        bar.update(compiling, description=f"compiled {len(executable.kernels)} kernels", total=1, completed=1)
        packing = bar.add_task("packing weights", total=executable.bytes_of("weight"))
        output.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=f".{output.name}-", dir=output.parent) as scratch:
            fresh = Path(scratch) / "model"
            fresh.mkdir()
            info = ModelInfo(title, loaded.architecture, loaded.context, chunk, loaded.vocabulary)
            write_bundle(
                fresh, executable, WEBGPU, info, loaded.weights, texts, lambda done: bar.update(packing, advance=done)
            )
            _install(fresh, folder, output)
    return folder


def _install(fresh: Path, folder: Path, site: Path) -> None:
    """Moves a finished model folder into the site and brings the page up to date."""
    new_site = not site.exists()
    try:
        site.mkdir(parents=True, exist_ok=True)
        copy_page(site)
        folder.parent.mkdir(exist_ok=True)
        if folder.exists():
            shutil.rmtree(folder)
        fresh.rename(folder)
        models = sorted(p.parent.name for p in folder.parent.glob("*/manifest.json"))
        (site / "models.json").write_text(json.dumps({"models": models}) + "\n")
    except BaseException:
        if new_site:
            shutil.rmtree(site, ignore_errors=True)
        raise


def copy_page(site: Path) -> None:
    """Copies the page and the run time into the site. Raises WebrelaxError where the VM was not built."""
    with as_file(files("webrelax.packaging.web")) as web:
        if not (web / "vm.wasm").exists():
            raise WebrelaxError(
                "the run time's vm.wasm is missing from the installation: run `make setup`, or install a release"
            )
        shutil.copytree(web, site, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*_NOT_SERVED))


def _name(text: str) -> str:
    """A folder name that is safe in a path and in a URL."""
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-.")[:80]
    if not name:
        raise WebrelaxError(f"{text!r} has no letter or digit to name the model by: give --name")
    return name
