"""The run time's own tests, in node's test runner: one pytest test a file."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
WEB = HERE.parent.parent / "web"


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.skipif(not (WEB / "vendor" / "tokenizers.js").exists(), reason="needs web/vendor (make setup)")
@pytest.mark.parametrize("path", sorted(HERE.glob("*.test.js")), ids=lambda path: path.name.removesuffix(".test.js"))
def test_node(path: Path) -> None:
    done = subprocess.run(["node", "--test", str(path)], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
