from __future__ import annotations

from pathlib import Path

import pytest

from webrelax.packaging.vm import OUTPUT, build

from .wasm import WasmVM


@pytest.fixture(scope="session")
def vm_wasm() -> Path:
    """The path of an up-to-date vm.wasm."""
    build()
    return OUTPUT


@pytest.fixture(scope="session")
def wasm_vm(vm_wasm: Path) -> WasmVM:
    """One VM for all tests: each loads its own module, as a page that changes models would."""
    return WasmVM(vm_wasm)
