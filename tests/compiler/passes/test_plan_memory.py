from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from webrelax.compiler.ir import Module, verify
from webrelax.compiler.ir.interpreter import Interpreter
from webrelax.compiler.passes import plan_memory
from webrelax.compiler.target import WEBGPU

from . import random_programs
from .memory_trace import Trace, Traced
from .random_programs import arguments

@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(random_programs.modules(), st.integers(1, 5), st.integers(0, 5), st.integers(0, 5), st.integers(0, 1))
def test_random_programs(module: Module, n: int, m: int, k: int, flag: int) -> None:
    verify(module)
    planned = plan_memory(module, WEBGPU)
    verify(planned)
    trace = Trace(planned)
    trace.run("main", [Traced("", a.shape, value=flag) for a in arguments(n, m, k, flag)])
    trace.check()
    given, again = arguments(n, m, k, flag), arguments(n, m, k, flag)
    expected = Interpreter(module).call("main", *given)
    actual = Interpreter(planned).call("main", *again)
    same(actual, expected)
    same(again, given)


def same(actual, expected):
    if isinstance(expected, (tuple,list)):
        for a, e in zip(actual, expected, strict=True):
            same(a, e)
    else:
        np.testing.assert_array_equal(actual, expected)
