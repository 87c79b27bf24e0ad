"""What becomes of records that a stop meets half done."""

from __future__ import annotations

import signal
import uuid

import pytest

from logbroker.cli.common.standard_output import TakenOutput
from logbroker.cli.main import run
from logbroker.client.sync import Admin


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_a_member_has_written_before_a_stop_is_committed(
    address: str, topic: str, stop: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"g-{uuid.uuid4()}"
    lines = 0

    def write(output: TakenOutput, data: bytes) -> None:
        nonlocal lines
        lines += data.count(b"\n")
        signal.raise_signal(stop)

    monkeypatch.setattr(TakenOutput, "write", write)
    command = ["consume", topic, "--group", group, "--from", "earliest", "--broker", address]
    assert run(command) == (130 if stop is signal.SIGINT else 0)
    with Admin(address) as admin:
        committed = sum(offset.offset for offset in admin.fetch_offsets(group).values())
    assert committed == lines > 0
