"""Rules that turn a tensor program into a kernel."""

from .kernel import Binding, Kernel
from .limits import check_bindings, check_limits
from .optimize import optimize
from .rewrite import merge_bindings
from .rules import RULES, can_combine, rule_for, schedule

__all__ = [
    "RULES",
    "Binding",
    "Kernel",
    "can_combine",
    "check_bindings",
    "check_limits",
    "merge_bindings",
    "optimize",
    "rule_for",
    "schedule",
]
