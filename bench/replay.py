"""What replaying captured dispatches saves the page's thread: host time of a decode step with replay and without.

    bench/replay.py [SITE] [--steps 40] [--json]

Both run in one page, step by step in turn; the logits are the same bits. The GPU's time is not in the figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.reader import open_bundle
from webrelax.packaging.serve import serving

ROOT = Path(__file__).parents[1]

RUN = """
async ([model, steps]) => {
  const [{ createEngine }, { Executor }] = await Promise.all([import("./runtime.js"), import("./executor.js")]);
  const run = Executor.prototype.run;
  let last;
  Executor.prototype.run = function (...call) {
    last = { executor: this, call };
    return run.apply(this, call);
  };
  const engine = await createEngine({ model: `models/${model}/`, target: "webgpu" });
  await engine.completions.create({ prompt: "Rain is", max_tokens: 3, temperature: 0, ignore_eos: true });
  Executor.prototype.run = run;
  const { executor, call: [name, variables, inputs] } = last;
  const milliseconds = { replayed: [], resolved: [] };
  for (let step = 0; step <= steps; step++) {
    const kinds = [["resolved", false], ["replayed", true]];
    for (const [kind, replay] of step % 2 ? kinds : kinds.reverse()) {
      executor.replay = replay;
      const start = performance.now();
      executor.run(name, variables, inputs);  // submits before it first waits
      if (step > 0) milliseconds[kind].push(performance.now() - start);
      await executor.idle();
    }
  }
  const logits = [];
  for (const replay of [false, true]) {
    executor.replay = replay;
    logits.push(new Int32Array((await executor.run(name, variables, inputs, "logits")).buffer));
  }
  const dispatches = executor.countDispatches(name, variables);
  const captured = executor.manifest.functions[name].captured;
  const same = logits[0].every((bits, at) => bits === logits[1][at]);
  await engine.dispose();
  return { name, captured, dispatches, same, milliseconds };
}
"""


def measure(site: Path, steps: int) -> dict[str, Any]:
    """Milliseconds of the page's thread for a decode step, the best of all. WebrelaxError if the logits differ."""
    sys.path.append(str(ROOT))  # at the end: in front, the root's packaging/ would hide the library of that name
    from e2e.chromium import chromium

    bundle = open_bundle(site)
    with serving(site) as url, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{url}models.json")
        page.set_default_timeout(0)
        found = page.evaluate(RUN, [bundle.folder.name, steps])
    if not found["same"] or not found["captured"]:
        raise WebrelaxError(f"{found['name']} is not captured, or replaying it gives other logits")
    host = {kind: min(each) for kind, each in found["milliseconds"].items()}
    return {
        "model": bundle.manifest["name"],
        "dispatches": found["dispatches"],
        "steps": steps,
        "resolved_ms": host["resolved"],
        "replayed_ms": host["replayed"],
        "ratio": host["replayed"] / host["resolved"],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "build" / "site", help="a built site")
    parser.add_argument("--steps", type=int, default=40, help="decode steps of each kind")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    try:
        found = measure(options.site, options.steps)
    except WebrelaxError as error:
        print(f"replay: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(found))
    else:
        print(f"{found['model']}: {found['dispatches']} dispatches a decode step, {found['steps']} steps of each kind")
        print(f"host time of a step: {found['resolved_ms']:.2f} ms resolved each time,", end=" ")
        print(f"{found['replayed_ms']:.2f} ms replayed (ratio {found['ratio']:.2f})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
