"""From a compiled model to a static site, and the command line."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("webrelax")
except PackageNotFoundError:  # read from a bare source tree, such as a page that loads the compiler
    __version__ = "0.0.0"

__all__ = ["__version__"]
