"""The scripts of bench/ as modules of a package, without the root on Python's path."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parents[2] / "bench"


def load(name: str) -> ModuleType:
    if "bench" not in sys.modules:
        spec = importlib.util.spec_from_file_location(
            "bench", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
        )
        assert spec is not None
        assert spec.loader is not None
        package = sys.modules["bench"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(package)
    return importlib.import_module(f"bench.{name}")


@pytest.fixture(scope="session")
def versus_relax() -> ModuleType:
    return load("versus_relax")


@pytest.fixture(scope="session")
def ablation() -> ModuleType:
    return load("ablation")
