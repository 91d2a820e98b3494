"""Measures a site's model in headless Chromium, with WebGPU in software: counts matter, times only compare.

    bench/browser.py [SITE] [--prompt-tokens 128] [--new-tokens 16] [--repeat 3] [--json]

Prints prefill and decode tokens/s and time to first token (medians), load time, dispatches a decode step, and
activation memory.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
from pathlib import Path
from typing import Any

from webrelax.packaging.reader import Bundle, open_bundle
from webrelax.packaging.serve import serving
from webrelax.packaging.text import Text

ROOT = Path(__file__).parents[1]

RUN = """
async ([model, prompt, tokens, repeat]) => {
  const { createEngine } = await import("./runtime.js");
  const engine = await createEngine({ model: `models/${model}/`, target: "webgpu" });
  const runs = [];
  for (let i = 0; i <= repeat; i++) {
    await engine.reset();
    const answer = await engine.completions.create({ prompt, max_tokens: tokens, temperature: 0, ignore_eos: true });
    runs.push(answer.usage);
  }
  const info = engine.info;
  await engine.dispose();
  return { info, runs: runs.slice(1) };
}
"""


def measure(site: Path, prompt_tokens: int, new_tokens: int, repeat: int) -> dict[str, Any]:
    """One page load, a warm-up, then `repeat` runs."""
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(ROOT))
    from e2e.chromium import chromium

    bundle = open_bundle(site)
    with serving(site) as url, chromium() as browser:
        page = browser.new_page()
        page.goto(f"{url}models.json")
        page.set_default_timeout(0)
        found = page.evaluate(RUN, [bundle.folder.name, prompt_of(bundle, prompt_tokens), new_tokens, repeat])
        version = browser.version
    info, runs = found["info"], found["runs"]
    adapter = f"{info['device']['vendor']} {info['device']['architecture']}"

    def median(key: str) -> float:
        return float(statistics.median(run["extra"][key] for run in runs))

    return {
        "model": bundle.manifest["name"],
        "machine": f"{platform.machine()}, Chromium {version}, {adapter}",
        "prompt_tokens": runs[0]["prompt_tokens"],
        "new_tokens": runs[0]["completion_tokens"],
        "prefill_tokens_per_s": median("prefill_tokens_per_s"),
        "decode_tokens_per_s": median("decode_tokens_per_s"),
        "time_to_first_token_s": median("time_to_first_token_s"),
        "load_s": info["load"]["total_s"],
        "dispatches_decode": info["dispatches"]["decode"],
        "activation_bytes": info["memory"]["storage"],
        "unplanned_activation_bytes": info["memory"]["unplanned"],
    }


def prompt_of(bundle: Bundle, tokens: int) -> str:
    """Prose of that many tokens of the model (or one more, where the cut does not fall between words)."""
    text = Text(bundle)
    words = (ROOT / "docs" / "architecture.md").read_text("utf-8").split()
    ids = text.encode(" ".join(words))
    return text.decode(ids[:tokens])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("site", type=Path, nargs="?", default=ROOT / "build" / "site")
    parser.add_argument("--prompt-tokens", type=int, default=128)
    parser.add_argument("--new-tokens", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    result = measure(args.site, args.prompt_tokens, args.new_tokens, args.repeat)
    if args.json:
        print(json.dumps(result))
        return 0
    width = max(map(len, result))
    for key, value in result.items():
        print(f"{key:<{width}}  {value:.3f}" if isinstance(value, float) else f"{key:<{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
