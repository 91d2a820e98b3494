"""Every kind of module, compiled and run on the device."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.pipeline import compile

from ..passes.test_every_pass import ZOO
from .compare import check_on_device

# What only the interpreter runs, and what the compiler says of it.
REFUSED: Mapping[str, str] = {
    "calls": "f: parameter callee is a function, which a compiled program can only call: pass it inside the module",
    "choices": "f.chosen_1: one arm gives 2 dimensions and the other 1, which must be as many",
    "data_dependent": "f: the VM cannot run",
    "nothing_known": r"f: parameter x is Tensor\(\): a compiled program needs its shape and element type",
}


@pytest.mark.parametrize("name", [name for name in ZOO if name not in REFUSED])
def test_the_device_agrees_with_the_interpreter(name: str) -> None:
    animal = ZOO[name]()
    check_on_device(animal.module, animal.arguments, animal.weights)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_refused(name: str) -> None:
    with pytest.raises(WebrelaxError, match=REFUSED[name]):
        compile(ZOO[name]().module)
