"""Code that computes symbolic values: each expression once, into a slot of the function's frame."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import WebrelaxError
from ..symbolic import Add, Const, Expr, FloorDiv, FloorMod, Max, Min, Mul, Var, as_expr, variables
from ..vm import Instruction


class Numbers:
    """The slots of one function, and the code so far.

    `ready` has what is computed when the current instruction runs; an arm of an `if` starts with a copy. The first
    slots are those of the symbol table, which kernels read. A jump names a label, which `finish` resolves.
    """

    def __init__(self, function: str, table: Sequence[Expr]) -> None:
        self.function = function
        self.code: list[Instruction] = []
        self.slot_of: dict[Expr, int] = {expr: at for at, expr in enumerate(table)}
        self.ready: set[Expr] = set()
        self.slots = len(table)
        self._labels = 0

    def emit(self, op: str, *args: int) -> None:
        """Adds an instruction."""
        self.code.append(Instruction(op, args))

    def label(self) -> int:
        """A new label, to be placed by `emit("label", label)`."""
        self._labels += 1
        return self._labels - 1

    def finish(self) -> tuple[Instruction, ...]:
        """The code, its labels resolved."""
        where: dict[int, int] = {}
        kept: list[Instruction] = []
        for instruction in self.code:
            if instruction.op == "label":
                where[instruction.args[0]] = len(kept)
            else:
                kept.append(instruction)
        jumps = ("jump", "jump_if_zero")
        return tuple(Instruction(i.op, (*i.args[:-1], where[i.args[-1]])) if i.op in jumps else i for i in kept)

    def fresh(self) -> int:
        """A new slot."""
        self.slots += 1
        return self.slots - 1

    def unknown(self) -> tuple[Var, int]:
        """A variable that stands for what only running the program tells, and its slot, which the caller fills."""
        variable = Var(f"value {self.slots}")
        self.slot_of[variable] = self.fresh()
        self.ready.add(variable)
        return variable, self.slot_of[variable]

    def knows(self, expr: Expr) -> bool:
        """Whether all variables of an expression are bound."""
        return all(v in self.ready for v in variables(expr))

    def evaluate(self, expr: Expr | int) -> int:
        """Emits what computes an expression, unless it was computed before, and returns its slot."""
        expr = as_expr(expr)
        if expr not in self.ready:
            slot = self._compute(expr)
            self.slot_of[expr] = slot
            self.ready.add(expr)
        return self.slot_of[expr]

    def move(self, slot: int, expr: Expr) -> None:
        """Puts the value of an expression into a slot."""
        self.emit("move", slot, self.evaluate(expr))

    def _compute(self, expr: Expr) -> int:
        match expr:
            case Const(value):
                slot = self._target(expr)
                self.emit("const", slot, value)
                return slot
            case Add(terms):
                parts, op = [self.evaluate(t) for t in terms], "add"
            case Mul(coefficient, factors):
                lead = [] if coefficient == 1 else [self.evaluate(coefficient)]
                parts, op = [*lead, *(self.evaluate(f) for f in factors)], "mul"
            case FloorDiv(a, b):
                parts, op = [self.evaluate(a), self.evaluate(b)], "floordiv"
            case FloorMod(a, b):
                parts, op = [self.evaluate(a), self.evaluate(b)], "floormod"
            case Min(args):
                parts, op = [self.evaluate(a) for a in args], "min"
            case Max(args):
                parts, op = [self.evaluate(a) for a in args], "max"
            case _:
                raise WebrelaxError(f"{self.function}: the VM cannot compute {expr} before the call runs")
        target = self._target(expr)
        first = parts[0]
        for at, part in enumerate(parts[1:], 1):
            into = target if at == len(parts) - 1 else self.fresh()
            self.emit(op, into, first, part)
            first = into
        return target

    def _target(self, expr: Expr) -> int:
        """The slot that an expression has in the table, or had before; else a new one."""
        known = self.slot_of.get(expr)
        return self.fresh() if known is None else known
