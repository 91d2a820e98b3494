"""The command line. Each command's work is in the module of its name: `webrelax build` is `build.run(arguments)`."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
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
_EXTRAS = {"wgpu": "native", "tokenizers": "native", "huggingface_hub": "hub"}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code: 0, 2 for a problem that the user can act on, 130 for Ctrl-C."""
    args = _parser().parse_args(argv)
    try:
        code: int = importlib.import_module(f".{args.command}", __package__).run(args)
        sys.stdout.flush()
        return code
    except WebrelaxError as error:
        return _fail(str(error))
    except ModuleNotFoundError as error:
        if error.name not in _EXTRAS:
            raise
        return _fail(f"this needs the Python package {error.name}: pip install 'webrelax[{_EXTRAS[error.name]}]'")
    except BrokenPipeError:
        # Whoever read the output left, as `head` does. The interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except OSError as error:
        if error.filename is None:
            raise
        return _fail(f"{error.filename}: {error.strerror}")
    except KeyboardInterrupt:
        return 130


def _fail(message: str) -> int:
    print(f"webrelax: {message}", file=sys.stderr)
    return 2


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
    _add_inspect(commands)
    return parser


def _add_build(commands: _Commands) -> None:
    build = _command(commands, "build", "compile a model into a static site")
    build.add_argument("model", type=Path, metavar="MODEL", help="the model: a GGUF file")
    build.add_argument("-o", "--output", type=Path, required=True, metavar="DIR", help="the site's folder")
    build.add_argument(
        "--name", metavar="NAME", help="the model's name in the site (default: the model file's, without its ending)"
    )
    build.add_argument(
        "--context",
        type=_positive,
        metavar="N",
        help="how many tokens a conversation holds, prompt and replies together (default: 2048, or fewer where the"
        " model was made for fewer)",
    )
    build.add_argument(
        "--prefill-chunk",
        type=_positive,
        default=128,
        metavar="N",
        help="how many tokens of a prompt are computed at a time (default: %(default)s)",
    )
    build.add_argument("--force", action="store_true", help="replace what is in the folder already")


def _add_serve(commands: _Commands) -> None:
    serve = _command(commands, "serve", "serve a site on this machine")
    _add_site(serve)
    serve.add_argument(
        "--port", type=_port, metavar="N", help="the port; 0 takes any free one (default: the first free from 8000 on)"
    )
    serve.add_argument(
        "--host",
        default="127.0.0.1",
        metavar="HOST",
        help="the address to listen on (default: %(default)s, for this machine alone; 0.0.0.0 is for everybody)",
    )


def _add_check(commands: _Commands) -> None:
    check = _command(commands, "check", "compare every kernel of a site with NumPy, on this machine's GPU")
    _add_site(check)
    _add_model(check)
    check.add_argument("--kernel", metavar="PATTERN", help="only kernels whose name matches, such as '*matmul*'")
    _add_json(check)


def _add_generate(commands: _Commands) -> None:
    generate = _command(commands, "generate", "continue a prompt with a site's model, on this machine's GPU")
    _add_site(generate)
    generate.add_argument("prompt", metavar="PROMPT", help="what to say to the model")
    generate.add_argument(
        "--max-tokens", type=_positive, default=128, metavar="N", help="stop after N tokens (default: %(default)s)"
    )
    generate.add_argument(
        "--temperature",
        type=_not_negative,
        metavar="T",
        help="0 always takes the likeliest token (default: what the model's generation_config.json says)",
    )
    generate.add_argument("--top-k", type=_positive, metavar="K", help="choose among the K likeliest tokens")
    generate.add_argument(
        "--top-p", type=_share, metavar="P", help="choose among the likeliest tokens that together have probability P"
    )
    generate.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the random numbers (default: %(default)s)"
    )
    generate.add_argument("--raw", action="store_true", help="the prompt is plain text to continue, not a chat message")
    generate.add_argument(
        "--top-logits",
        type=_positive,
        default=0,
        metavar="K",
        help="with --json: give the K highest logits at the prompt's last position",
    )
    generate.add_argument("--interpreter", action="store_true", help="run on the NumPy interpreter, not on the GPU")
    _add_model(generate)
    _add_json(generate)


def _add_inspect(commands: _Commands) -> None:
    inspect = _command(commands, "inspect", "show a site's functions, kernels, dispatches and memory plan")
    _add_site(inspect)
    _add_model(inspect)
    inspect.add_argument("--pass", dest="after", metavar="NAME", help="print the program as it is after this pass")
    _add_json(inspect)


def _command(commands: _Commands, name: str, summary: str) -> argparse.ArgumentParser:
    return commands.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")


def _add_site(command: argparse.ArgumentParser) -> None:
    command.add_argument("site", type=Path, metavar="SITE", help="a folder that `webrelax build` wrote")


def _add_model(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", metavar="NAME", help="which of the site's models (default: the first)")


def _add_json(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="print one JSON object")


def _positive(text: str) -> int:
    if (value := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not at least 1")
    return value


def _port(text: str) -> int:
    if not 0 <= (value := int(text)) <= 65535:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and 65535")
    return value


def _not_negative(text: str) -> float:
    if not 0 <= (value := float(text)) < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number of at least 0")
    return value


def _share(text: str) -> float:
    if not 0 < (value := float(text)) <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 1")
    return value


if __name__ == "__main__":
    sys.exit(main())
