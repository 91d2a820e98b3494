"""The mapped layout: pyproject.toml names each folder of Python, and no folder is importable by its bare name."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def python_folders() -> set[str]:
    files = (file for top in ("compiler", "packaging", "web") for file in (ROOT / top).rglob("*.py"))
    return {file.parent.relative_to(ROOT).as_posix() for file in files}


def folder_of(package: str) -> str:
    """Where setuptools looks for a package: by its longest mapped prefix."""
    mapping = SETUPTOOLS["package-dir"]
    prefix = max((name for name in mapping if f"{package}.".startswith(f"{name}.")), key=len)
    return "/".join([mapping[prefix], *package.removeprefix(prefix).split(".")[1:]])


def test_the_list_of_packages_names_each_folder_of_python() -> None:
    packages = SETUPTOOLS["packages"]
    assert {folder_of(package) for package in packages} == python_folders()
    assert packages == sorted(packages)


def test_each_package_has_an_init_file() -> None:
    assert [folder for folder in sorted(python_folders()) if not (ROOT / folder / "__init__.py").is_file()] == []


def test_the_folders_are_not_importable_by_their_bare_names() -> None:
    assert importlib.util.find_spec("compiler") is None
    library = importlib.util.find_spec("packaging")
    assert library is None or not Path(library.origin or "").is_relative_to(ROOT / "packaging")


@pytest.mark.slow
def test_the_wheel_carries_the_code_and_the_page(tmp_path: Path) -> None:
    # A copy, since setuptools leaves a build/lib that later builds would take old files from.
    tree = tmp_path / "tree"
    for top in ("compiler", "packaging", "web"):
        shutil.copytree(ROOT / top, tree / top, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, tree / file)
    command = [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(tree),
    ]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("webrelax-*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    code = {file for top in ("compiler", "packaging") for file in (ROOT / top).rglob("*.py")}
    expected = {f"webrelax/{file.relative_to(ROOT).as_posix()}" for file in code}
    page = {
        file
        for pattern in ("*.html", "*.js", "*.css", "vm.wasm", "vendor/*.js")
        for file in (ROOT / "web").glob(pattern)
    }
    expected |= {f"webrelax/packaging/{file.relative_to(ROOT).as_posix()}" for file in page}
    assert expected - names == set()
    assert [name for name in names if not name.startswith(("webrelax/", "webrelax-"))] == []
