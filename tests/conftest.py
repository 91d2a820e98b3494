"""What tests of several layers share: the model that the demo uses, and its independent reference."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

_ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """SmolLM2-135M-Instruct.Q4_1.gguf, fetched on first use."""
    from webrelax.compiler.errors import WebrelaxError
    from webrelax.packaging.models import MODELS, fetch

    try:
        return fetch(MODELS["smollm2"], _ROOT / "models")
    except WebrelaxError as error:
        pytest.fail(f"this test needs the SmolLM2 model, which could not be fetched: {error}", pytrace=False)


@pytest.fixture(scope="session")
def smollm2_oracle() -> dict[str, Any]:
    """Prompts with token ids, logits and greedy tokens of a float32 reference; `source` in the file says which."""
    oracle: dict[str, Any] = json.loads((_ROOT / "tests/data/oracle/smollm2.json").read_text("utf-8"))
    return oracle


@pytest.fixture(scope="session")
def smollm2_site(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2's site, built by the command line as a user builds it."""
    from webrelax.packaging.cli import main

    site = tmp_path_factory.mktemp("smollm2") / "site"
    assert main(["build", str(smollm2_path), "-o", str(site)]) == 0
    return site


@pytest.fixture(scope="session")
def smollm2_exact_site(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2 for the CPU alone, without codes of 8 bits in the place of activations."""
    from webrelax.packaging.cli import main

    site = tmp_path_factory.mktemp("smollm2-exact") / "site"
    assert main(["build", str(smollm2_path), "-o", str(site), "--targets", "wasm", "--exact"]) == 0
    return site
