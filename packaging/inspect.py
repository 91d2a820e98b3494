"""`webrelax inspect`: what is in a site: functions, kernels, the memory plan, the program after each pass."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from typing import Any

from ..compiler.errors import WebrelaxError
from .reader import Bundle, open_bundle
from .report import download_bytes, layers, page, steps


def run(args: argparse.Namespace) -> int:
    """The command; see `webrelax inspect --help`."""
    bundle = open_bundle(args.site, args.model, args.target)
    at = dict(args.at)
    if args.after:
        passes = bundle.stored["passes"]
        if args.after not in passes:
            raise WebrelaxError(f"there is no pass {args.after!r}; there are: {', '.join(passes)}")
        print(json.dumps({"pass": args.after, "program": passes[args.after]}) if args.json else passes[args.after])
        return 0
    if args.html:
        text = page(bundle, at)
        args.html.write_text(text, encoding="utf-8")
        written = {"html": str(args.html), "bytes": len(text.encode())}
        print(json.dumps(written) if args.json else f"wrote {args.html}; open it in a browser")
        return 0
    report = inspect(bundle, at)
    print(json.dumps(report, ensure_ascii=False) if args.json else _text(report))
    return 0


def inspect(bundle: Bundle, at: dict[str, int] | None = None) -> dict[str, Any]:
    """The report as plain data. Bytes are at the declared bounds; dispatches are of the largest step, or of one `at`
    these values of the variables. `layer` lists the kernels of one layer of each function.
    """
    ran = steps(bundle, at)
    manifest = bundle.manifest
    functions, uses = {}, Counter[int]()
    for name, step in ran.items():
        uses.update(d.kernel for d in step.dispatches)
        functions[name] = {
            "variables": {v: list(b) for v, b in bundle.functions[name].variables.items()},
            "dispatches": len(step.dispatches),
            "kernels": len({d.kernel for d in step.dispatches}),
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
                "source_bytes": len(k.text.encode()),
            }
            for i, k in enumerate(bundle.kernels)
        ],
        "layer": [
            {
                "function": name,
                "layers": layer.count,
                "kernel": k.name,
                "operations": list(k.operations),
                "beside": [list(part) for part in k.parts],
                "readers": list(k.readers),
                "leaves": k.leaves,
                "reasons": list(k.reasons),
            }
            for name, layer in layers(bundle, ran).items()
            for k in layer.kernels
        ],
        "dispatches": {name: f["dispatches"] for name, f in functions.items()},
        "storages": {b.name: b.size for b in bundle.buffers if b.kind == "storage"},
        "memory": manifest["memory"],
        "download_bytes": download_bytes(manifest),
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
    width = max(len(k["name"]) for k in report["kernels"]) + 2
    lines += ["", f"{'kernel':<{width}}{'uses':>6}{'buffers':>9}{'workgroup':>14}{'source':>10}"]
    for k in report["kernels"]:
        size = "x".join(map(str, k["workgroup"]))
        lines.append(f"{k['name']:<{width}}{k['dispatches']:>6}{k['bindings']:>9}{size:>14}{k['source_bytes']:>10}")
    for name in report["functions"]:
        lines += _layer(name, [k for k in report["layer"] if k["function"] == name])
    lines += ["", "memory"]
    lines += [f"  {name:<10}{_mib(size):>14}" for name, size in report["storages"].items()]
    lines += [f"  {kind:<10}{_mib(size):>14}" for kind, size in report["memory"].items()]
    lines += ["", f"download {_mib(report['download_bytes'])}", f"passes (see --pass): {', '.join(report['passes'])}"]
    return "\n".join(lines)


def _layer(function: str, kernels: list[dict[str, Any]]) -> list[str]:
    """The kernels of one layer, each with why it is not part of the one that reads its result."""
    if not kernels:
        return []
    count = kernels[0]["layers"]
    lines = [
        "",
        f"{function}, one of its {count} equal layers" if count > 1 else f"{function}, the whole function",
        "Each kernel with the operators that it computes (| are side by side), and why they are not part of a kernel",
        "that reads their result (fuse_ops), or beside an earlier one with the same input (merge_parallel).",
    ]
    for at, kernel in enumerate(kernels, 1):
        readers = [str(reader + 1) for reader in kernel["readers"]] + ["what follows the layer"] * kernel["leaves"]
        read = f", read by {', '.join(readers)}" if readers else ""
        lines.append(f"{at:>3}  {kernel['kernel'] or 'no kernel'}{read}")
        lines.append(f"     {' | '.join(map(', '.join, kernel['beside']))}")
        lines += [f"     - {reason}" for reason in kernel["reasons"]]
    return lines


def _mib(size: int) -> str:
    return f"{size / 2**20:.2f} MiB"
