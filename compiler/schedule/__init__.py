"""Rules that turn a tensor program into a kernel."""

from .kernel import Binding, Kernel
from .limits import check_bindings, check_limits
from .optimize import optimize
from .rewrite import merge_bindings
from .rules import RULES, combining_refusal, rule_for, schedule

__all__ = [
    "RULES",
    "Binding",
    "Kernel",
    "check_bindings",
    "check_limits",
    "combining_refusal",
    "merge_bindings",
    "optimize",
    "rule_for",
    "schedule",
]
