"""`python -m webrelax.packaging.vm [--force]`: brings web/vm.wasm up to date."""

from __future__ import annotations

import argparse
import sys

from ...compiler.errors import WebrelaxError
from .build import OUTPUT, build


def main() -> int:
    parser = argparse.ArgumentParser(description="Compiles the VM to web/vm.wasm.")
    parser.add_argument("--force", action="store_true", help="compile even if it is up to date")
    try:
        built = build(force=parser.parse_args().force)
    except WebrelaxError as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{OUTPUT.name}: {'built' if built else 'up to date'}, {OUTPUT.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
