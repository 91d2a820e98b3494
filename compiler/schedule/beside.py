"""Independent computations side by side: each has a kernel of its own, and a workgroup's number says which one it runs.

The branch is the same for a whole workgroup, so barriers inside are legal. They share workgroup memory: a workgroup
runs one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from ..errors import WebrelaxError
from ..symbolic import Expr, Var, as_expr, as_int, substitute, upper_bound, variables
from ..target import Target
from ..tir import Program, Scalar
from .body import Body, below
from .components import components
from .kernel import GROUP, Binding, Block, Kernel, Shared
from .lower import launch, product
from .rewrite import map_block, rebuild, rename_memory
from .walk import names_in, own_expressions, statements

Schedule = Callable[[Program, Target], Kernel]


def is_beside(program: Program) -> bool:
    """Several computations that do not need each other."""
    return len(components(program)) > 1


def schedule_beside(program: Program, target: Target, schedule: Schedule) -> Kernel:
    """One kernel of the kernels that `schedule` makes of the components.

    Raises WebrelaxError where they cannot have workgroups of one size.
    """
    parts = components(program)
    share = replace(
        target,
        unrolled_products=max(1, target.unrolled_products // len(parts)),
        parallel_threads=max(1, target.parallel_threads // len(parts)),
    )
    kernels = _of_one_size(parts, share, schedule)
    body = Body({name for kernel in kernels for name in names_in(kernel)})
    totals = [product(kernel.grid) for kernel in kernels]
    grid, number, conditions = launch(sum(totals, as_expr(0)), target)
    pool = _Pool(body)
    start = as_expr(0)
    with body.when(*conditions):
        if conditions:
            number = body.let_index("number", number)
        for at, (kernel, total) in enumerate(zip(kernels, totals, strict=True)):
            with ExitStack() as branch:
                if at > 0:
                    branch.enter_context(body.when(below(start - 1, number)))
                if at < len(kernels) - 1:
                    branch.enter_context(body.when(below(number, start + total)))
                places = _places(body, kernel, number - start, total)
                for statement in _moved(rename_memory(kernel.body, pool.names(kernel.shared)), places):
                    body.add(statement)
            start = start + total
    written = {b.buffer.name for kernel in kernels for b in kernel.bindings if b.writable}
    sources = dict(program.in_place)
    visible = (*program.inputs, *(b for b in program.outputs if b.name not in sources))
    bindings = tuple(Binding(b, b.name in written) for b in visible)
    size = kernels[0].workgroup
    return Kernel(program.name, bindings, program.symbols, size, grid, tuple(body.shared), body.finish())


def _of_one_size(parts: Sequence[Program], target: Target, schedule: Schedule) -> list[Kernel]:
    """The components' kernels, all with the smallest of their workgroup sizes."""
    kernels = [schedule(part, target) for part in parts]
    least = min(product_of(kernel) for kernel in kernels)
    small = replace(target, workgroup_invocations=least)
    kernels = [
        kernel if product_of(kernel) == least else schedule(part, small)
        for part, kernel in zip(parts, kernels, strict=True)
    ]
    if len({kernel.workgroup for kernel in kernels}) > 1:
        sizes = ", ".join(str(kernel.workgroup) for kernel in kernels)
        raise WebrelaxError(f"program {kernels[0].name}: its parts need workgroups of different sizes ({sizes})")
    return kernels


def product_of(kernel: Kernel) -> int:
    """Threads of a workgroup."""
    x, y, z = kernel.workgroup
    return x * y * z


class _Pool:
    """Workgroup arrays that kernels take turns with: as many of a type as one of them needs, as large as needed."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def names(self, wanted: Sequence[Shared]) -> dict[str, str]:
        """The pool's array for each array of a kernel."""
        taken: dict[str, str] = {}
        for array in wanted:
            shared = self._body.shared
            free = next(
                (at for at, s in enumerate(shared) if s.type == array.type and s.name not in taken.values()), None
            )
            if free is None:
                taken[array.name] = self._body.shared_array(array.name, array.type, array.size)
            else:
                taken[array.name] = shared[free].name
                shared[free] = replace(shared[free], size=max(shared[free].size, array.size))
        return taken


def _places(body: Body, kernel: Kernel, number: Expr, total: Expr) -> dict[str, Expr]:
    """What stands for the kernel's own place in its grid, by name."""
    used = {v.name for s in statements(kernel.body) for e in own_expressions(s) for v in variables(e)}
    high = upper_bound(total)
    bounded = body.let_index("own", as_expr(number), None if high is None else max(high - 1, 0))
    own = Var(bounded.name, 0, bounded.upper)
    result: dict[str, Expr] = {}
    rest: Expr = own
    for at, (place, extent) in enumerate(zip(GROUP, kernel.grid, strict=True)):
        inner = [e for e in kernel.grid[at + 1 :] if as_int(e) != 1]
        if place.name in used:
            value = rest % extent if inner else rest
            result[place.name] = value if value == own else body.let_index("place", value)
        rest = rest // extent
    return result


def _moved(block: Block, places: Mapping[str, Expr]) -> Block:
    """The statements at another place in the grid."""

    def index(expr: Expr) -> Expr:
        mapping: dict[Expr, Expr | int] = {v: places[v.name] for v in variables(expr) if v.name in places}
        return substitute(expr, mapping) if mapping else expr

    def scalar(node: Scalar) -> Scalar:
        return rebuild(node, scalar, index)

    return map_block(block, scalar, index)
