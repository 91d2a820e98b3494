"""The comparison of the CPU target with its peers: what turns come to, and what is said of wrong arguments."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from .conftest import load

LIMITS = {"prefill": 1.0, "decode": 1.5}


@pytest.fixture(scope="module")
def versus() -> ModuleType:
    return load("versus_wasm_peers")


@pytest.fixture(scope="module")
def figures(versus: ModuleType) -> ModuleType:
    return sys.modules["bench.wasm_peers.figures"]


def side(figures: ModuleType, name: str, kind: str, speeds: dict[int, tuple[float, float]], reload: float = 0) -> Any:
    """With the same turn three times for each number of threads, and a reload where one is given."""
    turns = {threads: [figures.Turn(*pair, (1, 2, 3))] * 3 for threads, pair in speeds.items()}
    return figures.Side(name, kind, "1.0", turns, {threads: [reload] for threads in speeds} if reload else {})


@pytest.fixture
def sides(figures: ModuleType) -> list[Any]:
    """Every figure of ours exactly at its limit."""
    return [
        side(figures, "webrelax", "ours", {1: (100.0, 30.0), 2: (170.0, 51.0)}, reload=2.0),
        side(figures, "one", "browser", {1: (100.0, 10.0), 2: (150.0, 34.0)}, reload=2.0),
        side(figures, "two", "browser", {1: (50.0, 20.0), 2: (170.0, 17.0)}, reload=3.0),
        side(figures, "three", "browser", {1: (1.0, 1.0), 2: (1.0, 1.0)}),
        side(figures, "llama.cpp", "native", {1: (100 / 0.55, 30 / 0.55), 2: (170 / 0.55, 51 / 0.55)}),
    ]


def found(versus: ModuleType, sides: list[Any]) -> Any:
    subject = versus.Subject("A model", Path("a.gguf"), Path("site"), ("one",), LIMITS)
    return versus.Found(subject, sides, "150.0")


def test_a_turn_counts_the_prompt_up_to_the_first_token_and_the_tokens_after_it(figures: ModuleType) -> None:
    turn = figures.Turn.of(128, 2.0, 6.0, [7] * 65)
    assert (turn.prefill, turn.decode) == (64.0, 16.0)


def test_a_speed_is_the_median_of_its_turns(figures: ModuleType) -> None:
    turns = [figures.Turn(*pair, ()) for pair in ((9.0, 1.0), (1.0, 3.0), (2.0, 2.0))]
    one = figures.Side("one", "browser", turns={1: turns}, reloads={1: [5.0, 1.0, 2.0]})
    assert (one.speed("prefill", 1), one.speed("decode", 1), one.reload(1)) == (2.0, 2.0, 2.0)


@pytest.mark.parametrize(
    ("theirs", "same"), [((5, 6, 7), 3), ((5, 6, 8), 2), ((4, 6, 7), 0), ((None, None, None), None)]
)
def test_agreement_is_the_length_of_the_common_beginning(
    figures: ModuleType, theirs: tuple[int | None, ...], same: int | None
) -> None:
    ours = figures.Side("webrelax", "ours", turns={1: [figures.Turn(1, 1, (5, 6, 7))]})
    peer = figures.Side("one", "browser", turns={1: [figures.Turn(1, 1, theirs)]})
    assert peer.agreement(ours, 1) == same


def test_a_figure_at_its_limit_passes(figures: ModuleType, sides: list[Any]) -> None:
    assert [bar for bar in figures.bars(sides, LIMITS) if not bar.passed] == []


def test_bars_are_against_the_best_peer_of_each_figure(figures: ModuleType, sides: list[Any]) -> None:
    assert [(bar.name, bar.against) for bar in figures.bars(sides, LIMITS)] == [
        ("prefill, 1 thread", "one"),
        ("prefill, 1 thread", "llama.cpp"),
        ("decode, 1 thread", "two"),
        ("decode, 1 thread", "llama.cpp"),
        ("prefill, 2 threads", "two"),
        ("prefill, 2 threads", "llama.cpp"),
        ("decode, 2 threads", "one"),
        ("decode, 2 threads", "llama.cpp"),
        ("prefill, 2 threads", "1 thread"),
        ("decode, 2 threads", "1 thread"),
        ("first token after a reload, 1 thread", "one"),
        ("first token after a reload, 2 threads", "one"),
    ]


@pytest.mark.parametrize(
    ("speeds", "reload", "missed"),
    [
        # One thread faster alone: two threads no longer scale.
        ({1: (101.0, 31.0), 2: (170.0, 51.0)}, 2.0, {("prefill", "1 thread"), ("decode", "1 thread")}),
        ({1: (99.0, 30.0), 2: (170.0, 51.0)}, 2.0, {("prefill", "one"), ("prefill", "llama.cpp")}),
        ({1: (100.0, 29.0), 2: (170.0, 51.0)}, 2.0, {("decode", "two"), ("decode", "llama.cpp")}),
        ({1: (100.0, 30.0), 2: (170.0, 51.0)}, 2.1, {("first token after a reload", "one")}),
    ],
)
def test_a_figure_beyond_its_limit_is_missed(
    figures: ModuleType,
    sides: list[Any],
    speeds: dict[int, tuple[float, float]],
    reload: float,
    missed: set[tuple[str, str]],
) -> None:
    sides[0] = side(figures, "webrelax", "ours", speeds, reload)
    wrong = [bar for bar in figures.bars(sides, LIMITS) if not bar.passed]
    assert {(bar.name.partition(",")[0], bar.against) for bar in wrong} == missed


def test_one_number_of_threads_has_no_scaling_and_no_peer_no_ratio(figures: ModuleType, sides: list[Any]) -> None:
    for each in sides:
        del each.turns[2]
        each.reloads.pop(2, None)
    assert {bar.against for bar in figures.bars(sides, LIMITS)} == {"one", "two", "llama.cpp"}
    assert list(figures.bars(sides[:1], LIMITS)) == []
    head, figure_head, *rows = figures.speed_table(sides)
    assert head.split() == ["1", "thread"]
    assert figure_head.split() == ["tokens/s", "prefill", "decode"]
    assert rows[0].split() == ["webrelax", "1.0", "100.0", "30.0"]


def test_the_report_shows_each_side_and_what_is_missed(
    versus: ModuleType, figures: ModuleType, sides: list[Any]
) -> None:
    sides[1] = side(figures, "one", "browser", {1: (200.0, 10.0), 2: (150.0, 34.0)}, reload=2.0)
    lines = list(versus.report(found(versus, sides)))
    assert lines[0].startswith("A model: 128 tokens of prompt, then 65 (after a reload 32, then 1); Chromium 150.0, ")
    words = [line.split() for line in lines]
    assert ["webrelax", "1.0", "100.0", "30.0", "170.0", "51.0", "1.70", "x", "1.70", "x"] in words
    assert ["two", "3.00", "3.00"] in words
    assert "The same tokens as ours: one 3, two 3, three 3, llama.cpp 3 of 65" in lines
    assert [line for line in words if line and line[-1] == "MISSED"] == [
        ["prefill,", "1", "thread", "[tokens/s]", "100", "one", "200", "0.50", ">=1", "MISSED"]
    ]


def test_json_is_one_object_with_every_turn(versus: ModuleType, sides: list[Any]) -> None:
    read = json.loads(json.dumps(versus.to_json([found(versus, sides)], 3)))
    assert read["settings"] == {"prompt_tokens": 128, "new_tokens": 64, "reload_prompt_tokens": 32, "runs": 3}
    assert read["machine"].keys() == {"architecture", "cpus", "chromium"}
    (model,) = read["models"]
    assert (model["name"], model["file"]) == ("A model", "a.gguf")
    ours, *_, native = model["sides"]
    assert ours["threads"]["2"] == {
        "prefill": 170.0,
        "decode": 51.0,
        "prefill_turns": [170.0] * 3,
        "decode_turns": [51.0] * 3,
        "same_tokens_as_ours": 3,
        "reload_s": 2.0,
        "reload_s_turns": [2.0],
    }
    assert native["kind"] == "native"
    assert native["threads"]["1"]["reload_s"] is None
    assert model["bars"][0] == {
        "name": "prefill, 1 thread",
        "unit": "tokens/s",
        "ours": 100.0,
        "against": "one",
        "theirs": 100.0,
        "limit": 1.0,
        "least": True,
        "ratio": 1.0,
        "passed": True,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--threads", "0"], "argument --threads: '0' is not a list of thread counts, as in 1,2"),
        (["--threads", "1;2"], "argument --threads: '1;2' is not a list of thread counts, as in 1,2"),
        (["--runs", "none"], "argument --runs: 'none' is not a whole number of at least 1"),
        (["--peers", "wllama2,ollama"], "argument --peers: there is no peer 'ollama'; there are wllama2, wllama3, "),
    ],
)
def test_a_wrong_argument_is_named(
    versus: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.setattr("sys.argv", ["versus_wasm_peers.py", *arguments])
    with pytest.raises(SystemExit):
        versus.main()
    assert said in capsys.readouterr().err


def test_what_is_missing_is_named_with_its_remedy(
    versus: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["versus_wasm_peers.py", "--site", str(tmp_path), "--peers", "wllama2"])
    assert versus.main() == 2
    assert f"{tmp_path} is not a site: build one with" in capsys.readouterr().err

    engines = sys.modules["bench.wasm_peers.engines"]
    monkeypatch.setattr(engines, "PACKAGES", tmp_path)
    with pytest.raises(versus.WebrelaxError, match=r"package\.json does not exist: `make bench-wasm` installs"):
        engines.peers("models/a.gguf")[0].version()

    monkeypatch.setattr(versus, "ROOT", tmp_path)
    assert list(versus.gemma(("wllama2",))) == []
    assert "Gemma 3 270M is left out: " in capsys.readouterr().err
