"""Measures a site's model on the CPU against other engines, in one Chromium, in turns, and holds it against bars.

    bench/versus_wasm_peers.py [--site SITE] [--threads 1,2] [--runs 5] [--peers NAME,..] [--gemma] [--json]

A prompt of 128 tokens, continued greedily by 64 after its first one; medians after a warm-up. The peers are
@wllama/wllama 2 and 3 on the site's GGUF file, onnxruntime-web on the same weights, in float32 and with 8 bits, and,
outside of the browser, llama.cpp where it is installed. `make bench-wasm` installs them. Also the time from a reload of
the page, with the model stored, to the first token after 32. `--gemma` adds Gemma 3 270M. Exits with 1 where a bar is
missed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from webrelax.compiler.errors import WebrelaxError
from webrelax.packaging.reader import Bundle, open_bundle
from webrelax.packaging.serve import serving
from webrelax.packaging.text import Text

if not __package__:
    # At the end of the path: in front, the root's packaging/ would hide the library of that name.
    sys.path.append(str(Path(__file__).parents[1]))

from bench.wasm_peers.engines import ROOT, Engine, Native, Peer, Prompt, Tab, Task, chromium, peers
from bench.wasm_peers.figures import (
    OURS,
    Bar,
    Side,
    bar_table,
    bars,
    record,
    reload_table,
    speed_table,
    threads_text,
)

PROMPT, TOKENS, OPENING = 128, 64, 32
NATIVE = "llama.cpp"
NAMES = (*(peer.name for peer in peers("")), NATIVE)
PROSE = """\
A lighthouse is a tower that carries a bright lamp, so that sailors can find their way along a coast at night. The \
oldest of them were fires of wood or coal on a hill, kept alight by people who lived beside them. Later came oil lamps \
behind lenses of glass, which gathered the light of a small flame into a beam that could be seen from twenty miles \
away. Each tower had its own rhythm of flashes, written down in a book that every ship carried, so that a captain who \
counted the seconds between two flashes knew which tower it was. Today most of them run without anybody, and many \
ships steer by signals from space, yet the lamps are still lit every evening, because a light on a rock needs no map."""


@dataclass(frozen=True)
class Subject:
    """A model that is measured: its GGUF file, its site, the peers, and the least ratios to the best in a browser."""

    name: str
    gguf: Path
    site: Path
    peers: tuple[str, ...]
    limits: dict[str, float]


@dataclass(frozen=True)
class Found:
    subject: Subject
    sides: list[Side]
    chromium: str

    @property
    def bars(self) -> list[Bar]:
        return list(bars(self.sides, self.subject.limits))


def smollm2(site: Path, names: tuple[str, ...]) -> Subject:
    gguf = ROOT / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    return Subject("SmolLM2-135M Q4_1", gguf, site, names, {"prefill": 1.0, "decode": 1.6})


def gemma(names: tuple[str, ...]) -> Iterator[Subject]:
    """None, and a word about it, where its file or its site is missing."""
    gguf, site = ROOT / "models" / "gemma-3-270m-it-Q4_K_M.gguf", ROOT / "build" / "site-gemma"
    for path, remedy in ((gguf, "put it there"), (site, f"`webrelax build {gguf} -o {site}` makes it")):
        if not path.exists():
            print(f"versus_wasm_peers: Gemma 3 270M is left out: {path} is missing, {remedy}", file=sys.stderr)
            return
    # Nothing here exports it for onnxruntime.
    names = tuple(name for name in names if not name.startswith("onnxruntime"))
    yield Subject("Gemma 3 270M Q4_K_M", gguf, site, names, {"prefill": 3.0, "decode": 3.0})


def task_of(bundle: Bundle) -> Task:
    """The prompts in the tokens of a model. Raises WebrelaxError where its tokenizer merges across the cut."""
    text = Text(bundle)

    def prompt(tokens: int) -> Prompt:
        ids = text.encode(PROSE)[:tokens]
        part = text.decode(ids)
        if len(ids) < tokens or text.encode(part) != ids:
            raise WebrelaxError(f"no part of this benchmark's prose is {tokens} tokens of {bundle.manifest['name']}")
        return Prompt(ids, part)

    # The first token comes of the prefill.
    return Task(prompt(PROMPT), TOKENS + 1, prompt(OPENING))


@dataclass(frozen=True)
class Contender:
    """A side, and what starts its engine with a number of threads."""

    side: Side
    start: Callable[[int], Engine]
    reloads: bool = False


def measure(subject: Subject, threads: Sequence[int], runs: int) -> Found:
    """All sides, ours first. Raises WebrelaxError where a site or a peer is missing, or fails."""
    bundle = open_bundle(subject.site, target="wasm")
    task = task_of(bundle)
    with serving(subject.site) as site, serving(ROOT) as root, chromium() as (context, version):

        def ours(count: int) -> Engine:
            options = {"site": site, "model": f"{site}models/{bundle.folder.name}/", "threads": count}
            return Tab(context, OURS, f"{site}models.json", OURS, options, task)

        def theirs(peer: Peer) -> Callable[[int], Engine]:
            page, packages = f"{root}bench/wasm_peers/page.html", f"{root}build/peers/node_modules/"
            given = {"packages": packages, "model": root + peer.model, "context": PROMPT + TOKENS + 1}
            return lambda count: Tab(context, peer.name, page, peer.module, {**given, "threads": count}, task)

        contenders = [Contender(Side(OURS, "ours"), ours, reloads=True)]
        for peer in peers(subject.gguf.relative_to(ROOT).as_posix()):
            if peer.name in subject.peers:
                side = Side(peer.name, "browser", peer.version())
                contenders.append(Contender(side, theirs(peer), peer.reloads))
        if NATIVE in subject.peers:
            contenders.append(Contender(Side(NATIVE, "native"), lambda count: Native(subject.gguf, count, task)))
        for count in threads:
            take_turns(contenders, count, runs)
    return Found(subject, [contender.side for contender in contenders], version)


def take_turns(contenders: Sequence[Contender], threads: int, runs: int) -> None:
    """Fills in the sides. Each has its turn before any has the next; the first of each does not count."""
    with contextlib.ExitStack() as stack:
        engines: list[tuple[Contender, Engine]] = []
        for contender in contenders:
            engine = stack.enter_context(contextlib.closing(contender.start(threads)))
            contender.side.version = contender.side.version or engine.version
            engines.append((contender, engine))
        for run in range(runs + 1):
            print(f"versus_wasm_peers: {threads_text(threads)}, turn {run} of {runs}", file=sys.stderr)
            for contender, engine in engines:
                turn = engine.turn()
                if run:
                    contender.side.turns.setdefault(threads, []).append(turn)
        for run in range(runs + 1):
            print(f"versus_wasm_peers: {threads_text(threads)}, reload {run} of {runs}", file=sys.stderr)
            for contender, engine in engines:
                if contender.reloads and isinstance(engine, Tab):
                    seconds = engine.reload()
                    if run:
                        contender.side.reloads.setdefault(threads, []).append(seconds)


def report(found: Found) -> Iterator[str]:
    yield (
        f"{found.subject.name}: {PROMPT} tokens of prompt, then {TOKENS + 1} (after a reload {OPENING}, then 1);"
        f" Chromium {found.chromium}, {platform.machine()}, {os.cpu_count()} CPUs"
    )
    yield ""
    yield from speed_table(found.sides)
    yield ""
    ours, *others = found.sides
    same = ((side.name, side.agreement(ours, min(ours.turns))) for side in others)
    if told := ", ".join(f"{name} {tokens}" for name, tokens in same if tokens is not None):
        yield f"The same tokens as ours: {told} of {TOKENS + 1}"
        yield ""
    yield from reload_table(found.sides)
    yield ""
    yield from bar_table(found.bars)


def to_json(found: Sequence[Found], runs: int) -> dict[str, Any]:
    """One object: settings, machine, and for each model its sides and bars."""
    return {
        "settings": {"prompt_tokens": PROMPT, "new_tokens": TOKENS, "reload_prompt_tokens": OPENING, "runs": runs},
        "machine": {"architecture": platform.machine(), "cpus": os.cpu_count(), "chromium": found[0].chromium},
        "models": [
            {
                "name": each.subject.name,
                "file": each.subject.gguf.name,
                "sides": [record(side, each.sides[0]) for side in each.sides],
                "bars": [asdict(bar) | {"ratio": bar.ratio, "passed": bar.passed} for bar in each.bars],
            }
            for each in found
        ],
    }


def positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def thread_counts(text: str) -> tuple[int, ...]:
    """Ascending, each once."""
    try:
        return tuple(sorted({positive(each) for each in text.split(",")}))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of thread counts, as in 1,2") from None


def peer_names(text: str) -> tuple[str, ...]:
    given = tuple(text.split(","))
    for name in given:
        if name not in NAMES:
            raise argparse.ArgumentTypeError(f"there is no peer {name!r}; there are {', '.join(NAMES)}")
    if NATIVE in given and not Native.installed():
        raise argparse.ArgumentTypeError("llama.cpp is not installed: `make bench-wasm` compiles it")
    return given


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--site", type=Path, default=ROOT / "build" / "site", help="a site of SmolLM2-135M")
    parser.add_argument("--threads", type=thread_counts, default=(1, 2), help="numbers of threads, as in 1,2")
    parser.add_argument("--runs", type=positive, default=5, help="turns of each engine that count")
    parser.add_argument("--peers", type=peer_names, help=f"of {', '.join(NAMES)}; all that are installed unless given")
    parser.add_argument("--gemma", action="store_true", help="measure Gemma 3 270M too")
    parser.add_argument("--json", action="store_true", help="print one object")
    options = parser.parse_args()
    chosen = options.peers or tuple(name for name in NAMES if name != NATIVE or Native.installed())
    try:
        subjects = [smollm2(options.site, chosen)]
        if options.gemma:
            subjects += gemma(chosen)
        found = [measure(subject, options.threads, options.runs) for subject in subjects]
    except WebrelaxError as error:
        print(f"versus_wasm_peers: {error}", file=sys.stderr)
        return 2
    if options.json:
        print(json.dumps(to_json(found, options.runs), indent=2))
    else:
        print("\n\n".join("\n".join(report(each)) for each in found))
    return 0 if all(bar.passed for each in found for bar in each.bars) else 1


if __name__ == "__main__":
    sys.exit(main())
