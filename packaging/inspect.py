"""`webrelax inspect`: what is in a site: functions, kernels, the memory plan, the program after each pass."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from ..compiler.errors import WebrelaxError
from ..compiler.vm import Command, Machine, Suspended
from .reader import Bundle, open_bundle


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax inspect --help`."""
    bundle = open_bundle(args.site, args.model)
    if args.after:
        passes = bundle.stored["passes"]
        if args.after not in passes:
            raise WebrelaxError(f"there is no pass {args.after!r}; there are: {', '.join(passes)}")
        print(json.dumps({"pass": args.after, "program": passes[args.after]}) if args.json else passes[args.after])
        return 0
    report = inspect(bundle)
    print(json.dumps(report, ensure_ascii=False) if args.json else _text(report))
    return 0


def inspect(bundle: Bundle) -> dict[str, Any]:
    """The report as plain data. Bytes are at the declared bounds; dispatches are of the largest step."""
    machine = Machine(bundle.bytecode)
    manifest = bundle.manifest
    functions, uses = {}, Counter[int]()
    for name, entry in bundle.functions.items():
        at = {v: high for v, (_, high) in entry.variables.items()}
        if "m" in at and "n" in at:
            at["m"] = max(0, manifest["model"]["context"] - at["n"])
        step = machine.call(entry.index, [d if isinstance(d, int) else at[d] for a in entry.arguments for d in a.shape])
        if isinstance(step, Suspended):
            raise WebrelaxError(f"{name} reads values back from the device: its dispatches are not known ahead")
        ran = [c[1] for c in step.commands if c[0] == Command.DISPATCH]
        uses.update(ran)
        functions[name] = {
            "variables": {v: list(b) for v, b in entry.variables.items()},
            "dispatches": len(ran),
            "kernels": len(set(ran)),
            "unplanned_bytes": bundle.stored["unplanned"].get(name),
        }
    return {
        "name": manifest["name"],
        "model": manifest["model"],
        "profile": bundle.profile,
        "passes": list(bundle.stored["passes"]),
        "functions": functions,
        "kernels": [
            {
                "name": k.name,
                "dispatches": uses[i],
                "bindings": len(k.access),
                "workgroup": list(k.workgroup),
                "wgsl_bytes": len(k.wgsl.encode()),
            }
            for i, k in enumerate(bundle.kernels)
        ],
        "dispatches": {name: f["dispatches"] for name, f in functions.items()},
        "storages": {b.name: b.size for b in bundle.buffers if b.kind == "storage"},
        "memory": manifest["memory"],
        "download_bytes": sum(f["size"] for n, f in manifest["files"].items() if not n.startswith("program-")),
    }


def _text(report: dict[str, Any]) -> str:
    model = report["model"]
    lines = [
        f"{report['name']}: {model['architecture']}, vocabulary {model['vocab']}, context {model['context']},"
        f" prefill chunk {model['prefill_chunk']}, profile {report['profile']}",
        "",
        f"{'function':<12}{'dispatches':>12}{'kernels':>10}{'unplanned':>14}   variables",
    ]
    for name, f in report["functions"].items():
        bounds = ", ".join(f"{low} <= {v} <= {high}" for v, (low, high) in f["variables"].items())
        lines.append(f"{name:<12}{f['dispatches']:>12}{f['kernels']:>10}{_mib(f['unplanned_bytes']):>14}   {bounds}")
    lines += ["", f"{'kernel':<48}{'uses':>6}{'buffers':>9}{'workgroup':>14}{'WGSL':>10}"]
    for k in report["kernels"]:
        size = "x".join(map(str, k["workgroup"]))
        lines.append(f"{k['name']:<48}{k['dispatches']:>6}{k['bindings']:>9}{size:>14}{k['wgsl_bytes']:>10}")
    lines += ["", "memory"]
    lines += [f"  {name:<10}{_mib(size):>14}" for name, size in report["storages"].items()]
    lines += [f"  {kind:<10}{_mib(size):>14}" for kind, size in report["memory"].items()]
    lines += ["", f"download {_mib(report['download_bytes'])}", f"passes (see --pass): {', '.join(report['passes'])}"]
    return "\n".join(lines)


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"
