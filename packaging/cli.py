"""The command line. Each command's work is in the module of its name: `webrelax build` is `build.run(arguments)`."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import nan
from pathlib import Path
from typing import TypeAlias

from ..compiler.errors import WebrelaxError
from . import __version__

_DESCRIPTION = """\
Compile a language model ahead of time into a folder of static files that runs it in the visitor's browser.

  webrelax build model.gguf -o site/     model in, static site out
  webrelax serve site/                   look at it on localhost"""

_Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

# What a missing package belongs to.
_EXTRAS = {"wgpu": "native", "wasmtime": "native", "tokenizers": "native", "huggingface_hub": "hub"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code; see `guarded`."""
    _open_streams()
    args = _parser().parse_args(argv)
    return guarded(lambda: importlib.import_module(f".{args.command}", __package__).run(args))


def guarded(run: Callable[[], int]) -> int:
    """Calls `run` and returns its exit code, 2 for a problem that the user can act on, 130 for Ctrl-C.

    A request to end (SIGTERM, SIGHUP) raises SystemExit, so that `run` can tidy up.
    """
    with _tidy_end():
        try:
            code = run()
            sys.stdout.flush()
            return code
        except WebrelaxError as error:
            return _fail(str(error))
        except ModuleNotFoundError as error:
            if error.name not in _EXTRAS:
                raise
            return _fail(f"this needs the Python package {error.name}: pip install 'webrelax[{_EXTRAS[error.name]}]'")
        except BrokenPipeError:  # whoever read the output left, as `head` does
            _drop_output()
            return 141
        except MemoryError:
            return _fail("there is not enough memory for this on this machine")
        except OSError as error:
            _drop_output()
            # Only what goes to stdout has no name: a build tells of its files itself.
            return _fail(f"{'stdout' if error.filename is None else error.filename}: {error.strerror or error}")
        except KeyboardInterrupt:
            return 130


def _fail(message: str) -> int:
    # What stands in a file or in its name may hold line breaks, or codes that command the terminal.
    line = re.sub(r"\s*\n\s*", " ", message.strip())
    print("webrelax:", "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line), file=sys.stderr)
    return 2


def _open_streams() -> None:
    """Gives a closed stdout or stderr a place to go to, and lets no character be unprintable."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115 - open until the end
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _drop_output() -> None:
    """What could not be printed must not fail once more when the interpreter ends."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _tidy_end() -> Iterator[None]:
    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    numbers = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    if threading.current_thread() is not threading.main_thread():  # Python handles signals in the main thread alone
        numbers = []
    before = {number: signal.signal(number, end) for number in numbers if signal.getsignal(number) == signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="webrelax", description=_DESCRIPTION, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"webrelax {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_build(commands)
    _add_serve(commands)
    _add_check(commands)
    _add_generate(commands)
    _add_perplexity(commands)
    _add_inspect(commands)
    return parser


def _add_build(commands: _Commands) -> None:
    build = _command(commands, "build", "compile a model into a static site")
    build.add_argument("model", type=Path, metavar="MODEL", help="the model: a GGUF file of the llama architecture")
    build.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="the site's folder")
    build.add_argument(
        "--name", metavar="NAME", help="the model's name in the site (default: the model file's, without its ending)"
    )
    build.add_argument(
        "--context",
        type=_COUNT,
        metavar="N",
        help="how many tokens a conversation holds, prompt and replies together (default: 2048, or fewer where the"
        " model was made for fewer)",
    )
    build.add_argument(
        "--prefill-chunk",
        type=_COUNT,
        default=128,
        metavar="N",
        help="how many tokens of a prompt are computed at a time (default: %(default)s)",
    )
    build.add_argument(
        "--targets",
        type=_targets,
        metavar="LIST",
        help="what the page can run the model on: webgpu, wasm (the CPU; needs emcc), or both as webgpu,wasm (default:"
        " both where emcc is installed)",
    )
    build.add_argument(
        "--exact",
        action="store_true",
        help="on the CPU, compute with 32-bit activations instead of 8-bit ones: slower, but as precise as on a GPU",
    )
    build.add_argument(
        "--force",
        action="store_true",
        help="replace the model of this name, or write into a folder that holds other files",
    )


def _add_serve(commands: _Commands) -> None:
    serve = _command(commands, "serve", "serve a site on this machine")
    _add_site(serve)
    serve.add_argument(
        "--port", type=_PORT, metavar="N", help="the port; 0 takes any free one (default: the first free from 8000 on)"
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="the address to listen on (default: %(default)s, for this machine alone; 0.0.0.0 is for everybody, but"
        " browsers on other machines give WebGPU only to https pages)",
    )


def _add_check(commands: _Commands) -> None:
    check = _command(commands, "check", "compare every kernel of a site with NumPy, on this machine's GPU or CPU")
    _add_site(check)
    _add_model(check)
    _add_target(check)
    check.add_argument("--kernel", metavar="PATTERN", help="only kernels whose name matches, such as '*matmul*'")
    _add_json(check)


def _add_generate(commands: _Commands) -> None:
    generate = _command(commands, "generate", "continue a prompt with a site's model, on this machine's GPU or CPU")
    _add_site(generate)
    generate.add_argument("prompt", type=_text, metavar="PROMPT", help="what to say to the model")
    generate.add_argument(
        "--max-tokens", type=_COUNT, default=128, metavar="N", help="stop after N tokens (default: %(default)s)"
    )
    generate.add_argument(
        "--temperature",
        type=_TEMPERATURE,
        metavar="T",
        help="0 always takes the likeliest token (default: what the model's generation_config.json says)",
    )
    generate.add_argument("--top-k", type=_COUNT, metavar="K", help="choose among the K likeliest tokens")
    generate.add_argument(
        "--top-p", type=_SHARE, metavar="P", help="choose among the likeliest tokens that together have probability P"
    )
    generate.add_argument(
        "--seed", type=_SEED, default=0, metavar="N", help="of the random numbers (default: %(default)s)"
    )
    generate.add_argument("--raw", action="store_true", help="the prompt is plain text to continue, not a chat message")
    generate.add_argument(
        "--top-logits",
        type=_COUNT,
        default=0,
        metavar="K",
        help="with --json: give the K highest logits at the prompt's last position",
    )
    generate.add_argument("--interpreter", action="store_true", help="run on the NumPy interpreter (slow)")
    _add_model(generate)
    _add_target(generate)
    _add_json(generate)


def _add_perplexity(commands: _Commands) -> None:
    summary = "measure how well a site's model foresees a text, on this machine's GPU or CPU"
    perplexity = _command(commands, "perplexity", summary)
    _add_site(perplexity)
    perplexity.add_argument("text", type=Path, metavar="TEXT", help="a file of UTF-8 text")
    perplexity.add_argument("--tokens", type=_COUNT, metavar="N", help="read the first N tokens alone (default: all)")
    perplexity.add_argument(
        "--window",
        type=_COUNT,
        metavar="N",
        help="how many tokens a prediction sees at most; the text is cut into windows of so many (default: 512, or the"
        " model's context where that is shorter)",
    )
    perplexity.add_argument("--interpreter", action="store_true", help="run on the NumPy interpreter (slow)")
    _add_model(perplexity)
    _add_target(perplexity)
    _add_json(perplexity)


def _add_inspect(commands: _Commands) -> None:
    inspect = _command(commands, "inspect", "show a site's functions, kernels, dispatches and memory plan")
    _add_site(inspect)
    _add_model(inspect)
    _add_target(inspect)
    inspect.add_argument(
        "--pass",
        dest="after",
        metavar="NAME",
        help="print the program as it is after this pass; without it, the passes are listed last",
    )
    inspect.add_argument("--html", type=Path, metavar="FILE", help="write a page that shows how the model was compiled")
    inspect.add_argument(
        "--at",
        type=_value,
        action="append",
        default=[],
        metavar="NAME=N",
        help="show a step with this value of a variable, such as n=16 (new tokens) or m=100 (tokens before them);"
        " may be repeated (default: the largest step)",
    )
    _add_json(inspect)


def _targets(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if not set(names) <= {"webgpu", "wasm"}:
        raise argparse.ArgumentTypeError(f"{text!r} is not webgpu, wasm or webgpu,wasm")
    return names


def _value(text: str) -> tuple[str, int]:
    name, equals, value = text.partition("=")
    if not name or not equals or not value.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not like n=16")
    return name, int(value)


def _command(commands: _Commands, name: str, summary: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def _add_site(command: argparse.ArgumentParser) -> None:
    command.add_argument("site", type=Path, metavar="SITE", help="a folder that `webrelax build` wrote")


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", metavar="NAME", help="which of the site's models, where it has several")


def _add_target(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--target", choices=("webgpu", "wasm"), help="which of the site's targets (default: the first that it has)"
    )


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")


@dataclass(frozen=True)
class _Number:
    """Reads a number of the command line."""

    kind: type[int] | type[float]
    low: float
    high: float
    above: bool = False  # `low` itself is too small

    def __call__(self, text: str) -> float:
        try:
            value = self.kind(text)
        except ValueError:
            value = nan
        if self.low <= value <= self.high and not (self.above and value == self.low):
            return value
        noun = "a whole number" if self.kind is int else "a number"
        bounds = f"above {self.low} and at most {self.high}" if self.above else f"from {self.low} to {self.high}"
        raise argparse.ArgumentTypeError(f"{text[:40]!r} is not {noun} {bounds}")


_COUNT = _Number(int, 1, 2**31 - 1)
_PORT = _Number(int, 0, 65535)
_SEED = _Number(int, 0, 2**53 - 1)
_TEMPERATURE = _Number(float, 0, 100)
_SHARE = _Number(float, 0, 1, above=True)


def _text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise argparse.ArgumentTypeError(f"{ascii(text)[:80]} is not UTF-8 text") from None
    return text


if __name__ == "__main__":
    sys.exit(main())
