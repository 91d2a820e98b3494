"""What a quantization of one's own costs: `bench/custom_quantization.py [--json] [--seconds S]`.

The same matrix multiplications with weights in the compiler's own 4-bit format and in that of
examples/custom_quantization.py, of which the compiler knows a tensor program: for one row (a step of decoding) and for
128 (a chunk of a prompt), on this machine's Vulkan device. Exits with 1 if a product takes over 1.5 times as long.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from webrelax.compiler.errors import WebrelaxError
from webrelax.compiler.native.device import default_device
from webrelax.compiler.pipeline import compile
from webrelax.compiler.symbolic import Expr, Var

if not __package__:
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(Path(__file__).parents[1]))

from bench.kernels import Job, job, ready
from examples.custom_quantization import Weight, built_in, linear, ours

BAR = 1.5
SHAPES = ((1536, 576), (576, 1536), (4096, 4096))  # rows and columns of weights
TOKENS = (1, 128)
LEAST = 5  # runs of each kernel


@dataclass(frozen=True)
class Row:
    """One product in both formats: the schedule rule of both kernels, bytes of WGSL, and median seconds of a dispatch.

    `ratio` is the median of those of a custom dispatch and the built-in one before it.
    """

    tokens: int
    rows: int
    columns: int
    rule: str
    wgsl: tuple[int, int]
    built_in: float
    custom: float
    ratio: float


def kernel(weight: Weight, tokens: int, rows: int, columns: int) -> Job:
    """The only kernel of a product. Raises WebrelaxError where the compiler makes several."""
    n: Expr | int = 1 if tokens == 1 else Var("n", 1, tokens)
    executable = compile(linear(weight, n, rows, columns))
    if len(executable.kernels) != 1:
        names = ", ".join(k.source.name for k in executable.kernels)
        raise WebrelaxError(f"a product of {rows} x {columns} is to be one kernel with its decode, not {names}")
    program = executable.module.programs[executable.kernels[0].program]
    return job(weight.__name__, program, tokens, rows * columns)


def compare(tokens: int, rows: int, columns: int, seconds: float) -> Row:
    """Runs both in turn for some seconds; what else the machine does hits both runs of a pair."""
    jobs = [kernel(weight, tokens, rows, columns) for weight in (built_in, ours)]
    if jobs[0].rule != jobs[1].rule:
        raise WebrelaxError(f"the rules differ: {jobs[0].rule} for the built-in format, {jobs[1].rule} for the other")
    dispatches = [ready(each)[1] for each in jobs]
    times: list[list[float]] = []
    while len(times) < LEAST or sum(map(sum, times)) < seconds:
        times.append([dispatch() for dispatch in dispatches])
    first, second = map(median, zip(*times, strict=True))
    ratio = median(custom / own for own, custom in times)
    sizes = (len(jobs[0].source.text), len(jobs[1].source.text))
    return Row(tokens, rows, columns, jobs[0].rule, sizes, first, second, ratio)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each product, shared by both formats")
    options = parser.parse_args(arguments)
    found = [compare(tokens, *shape, options.seconds) for tokens in TOKENS for shape in SHAPES]
    worst = max(row.ratio for row in found)
    if options.json:
        rows = [asdict(row) for row in found]
        print(json.dumps({"device": default_device().description, "bar": BAR, "worst": worst, "rows": rows}, indent=2))
    else:
        print(default_device().description)
        print(f"{'tokens':>6}  {'weight':<12}{'rule':<6}{'built-in ms':>12}{'custom ms':>11}{'ratio':>7}")
        for row in found:
            times = f"{row.built_in * 1e3:>12.2f}{row.custom * 1e3:>11.2f}{row.ratio:>7.2f}"
            print(f"{row.tokens:>6}  {f'{row.rows} x {row.columns}':<12}{row.rule:<6}{times}")
        print(f"worst ratio {worst:.2f}, at most {BAR} is allowed: {'met' if worst <= BAR else 'missed'}")
    return 0 if worst <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
