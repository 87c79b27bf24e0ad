"""The runner of the long tests: shards, what is done, and failures that can be repeated."""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.crash import torture
from tests.crash.columns import Column, all_columns
from tests.crash.torture import Done, Shard, run_all, summarize


@pytest.fixture
def done(tmp_path: Path) -> Done:
    return Done(tmp_path / "state" / "done.jsonl")


@pytest.fixture
def column() -> Column:
    return Column(name="dice", about="one throw", seeds=range(10), run=lambda seed, directory: {})


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The seeds that were run, in order; seed 3 fails."""
    seeds: list[int] = []

    def run_seed(column: Column, seed: int) -> tuple[dict[str, int] | None, str]:
        seeds.append(seed)
        return (None, "it fell off the table") if seed == 3 else ({"throws": 2}, "")

    monkeypatch.setattr(torture, "run_seed", run_seed)
    return seeds


def test_shards_share_the_seeds_between_them() -> None:
    owners = Counter(position for index in range(1, 5) for position in range(103) if Shard(f"{index}/4").has(position))
    assert owners == Counter(range(103))


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "x/4", "1/"])
def test_a_wrong_shard_is_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="such as 2/8"):
        Shard(text)


def test_finished_seeds_are_not_run_again_and_failed_ones_are(
    column: Column, done: Done, ran: list[int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_all([column], Shard("1/2"), done) == 0
    assert run_all([column], Shard("1/1"), done) == 1
    assert ran == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]
    said = capsys.readouterr().out
    assert "it fell off the table" in said
    assert 'repeat it: make torture ARGS="--column dice --seed 3"' in said
    assert run_all([column], Shard("1/1"), done) == 1
    assert ran[10:] == [3]


def test_the_summary_adds_up(column: Column, done: Done, ran: list[int], capsys: pytest.CaptureFixture[str]) -> None:
    run_all([column], Shard("1/1"), done)
    capsys.readouterr()
    summarize([column], done)
    assert capsys.readouterr().out == "dice (one throw): 9 of 10 seeds; throws 18\n"


def test_what_a_seed_leaves_is_kept_where_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(seed: int, directory: Path) -> dict[str, int]:
        assert list(directory.iterdir()) == []
        (directory / "evidence").write_text("here", encoding="ascii")
        assert seed != 7, "lost"
        return {"throws": 1}

    monkeypatch.setattr(torture, "_STATE_DIR", tmp_path)
    fields: dict[str, Any] = {"name": "dice", "about": "", "seeds": [6, 7], "run": run}
    for _ in range(2):
        with pytest.raises(AssertionError, match="lost"):
            torture.run_here(Column(**fields), 7)
    assert (tmp_path / "left" / "dice-7" / "evidence").exists()
    torture.run_here(Column(**fields), 6)
    assert not (tmp_path / "left" / "dice-6").exists()
    assert capsys.readouterr().out == 'figures {"throws": 1}\n'


def test_a_seed_runs_in_a_process_of_its_own_and_what_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    fields: dict[str, Any] = {"name": "no-such-column", "about": "", "seeds": [7], "run": dict}
    figures, said = torture.run_seed(Column(**fields), 7)
    assert figures is None
    assert "invalid choice" in said
    figures, said = torture.run_seed(Column(**fields, timeout_seconds=0.01), 7)
    assert figures is None
    assert "not done after 0.01 s" in said


def test_every_folder_may_register_columns() -> None:
    names = [column.name for column in all_columns()]
    assert {"crash-kill", "crash-power"} <= set(names)
    assert len(set(names)) == len(names)
