"""Keeps the root off `sys.path`, where the folder `packaging` would shadow the library that pytest itself imports."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).parent
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != _ROOT]
