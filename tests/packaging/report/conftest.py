"""A small site to report on."""

from __future__ import annotations

from pathlib import Path

import pytest

from webrelax.packaging.cli import main
from webrelax.packaging.reader import Bundle, open_bundle

from ...compiler.frontend.small_gguf import small_llama


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small random model with a context of 48 tokens and chunks of 16."""
    folder = tmp_path_factory.mktemp("report")
    model = small_llama(folder / "tiny.gguf")
    assert main(["build", str(model), "-o", str(folder / "site"), "--context", "48", "--prefill-chunk", "16"]) == 0
    return folder / "site"


@pytest.fixture(scope="session")
def bundle(site: Path) -> Bundle:
    return open_bundle(site)
