"""Counts in what commands say: one of a thing is written in the singular."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from logbroker.cli.common.lines import counted
from logbroker.client.sync import Admin
from logbroker.embedded_broker import embedded
from tests.cli.command import logbroker

CLI = Path(__file__).resolve().parents[2] / "logbroker" / "cli"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 batches"), (1, "1 batch"), (2, "2 batches"), (2_000, "2,000 batches")]
)
def test_a_count_has_its_noun(count: int, text: str) -> None:
    assert counted(count, "batch", "batches") == text
    assert counted(count, "record") == re.sub("batch(es)?", "records" if count != 1 else "record", text)


def test_one_record_before_a_bad_line_is_one() -> None:
    with embedded() as broker, Admin(broker.address) as admin:
        admin.create_topic("t")
        result = logbroker("produce", "t", "--broker", broker.address, stdin=b"good\n\xff\n")
    assert result.returncode == 1
    assert b"(1 record before it was sent)" in result.stderr


def test_no_command_writes_a_plural_behind_a_bare_number() -> None:
    """Shares ("3 of 8 partitions") and rates aside: `counted` writes numbers of things."""
    bare = re.compile(r"(?<!of )\{[^{}]*:,(?:\.0f)?\} (?:records|keys|lanes|batches|partitions|members|entries)\b(?!/)")
    found = [
        f"{path.relative_to(CLI)}: {line.strip()}"
        for path in sorted(CLI.rglob("*.py"))
        for line in path.read_text(encoding="utf-8").splitlines()
        if bare.search(line)
    ]
    assert found == []
