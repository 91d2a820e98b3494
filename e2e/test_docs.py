"""The JavaScript of the documents runs as it stands, against a site: a page's blocks, in order, are one module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Page

from webrelax.packaging.serve import serving

from .toy import NAME, build_toy_site

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```js\n(.*?)^```$", re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("document", ["README.md", "docs/javascript-api.md"])
def test_the_javascript_of_a_document_runs(page: Page, tmp_path: Path, document: str) -> None:
    blocks = BLOCK.findall((ROOT / document).read_text("utf-8"))
    assert blocks
    site = build_toy_site(tmp_path / "site")
    (site / "document.js").write_text("".join(blocks).replace("models/NAME/", f"models/{NAME}/"), "utf-8")
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    with serving(site) as address:
        page.goto(address + "models.json")
        page.evaluate("import('./document.js')")
    assert any("Ready" in line for line in said), said
