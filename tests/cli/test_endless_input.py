"""Inputs without an end, or without line feeds, such as a device: commands refuse them within some memory."""

from __future__ import annotations

import resource
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import ENVIRONMENT, LOGBROKER

MEMORY_BYTES = 1 << 30
ENDLESS = Path("/dev/zero")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("produce", "t", "--raw"), "line 1 has more than 128.0 MiB"),
        (("produce", "t", "--format", "json"), "line 1 has more than 128.0 MiB"),
        (("produce", "t", "--format", "csv"), "line 1 has more than 128.0 MiB"),
        (("queue", "replace", "g", "k"), "the value has more than 16.0 MiB"),
        (("plan", "--rate", "4", "--work-ms", "2", "--from", str(ENDLESS)), "/dev/zero has more than 64.0 MiB"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else "",
)
def test_an_endless_input_is_refused(address: str, topic: str, arguments: tuple[str, ...], told: str) -> None:
    arguments = tuple(topic if argument == "t" else argument for argument in arguments)
    at = () if arguments[0] == "plan" else ("--broker", address)
    with ENDLESS.open("rb") as endless:
        ended = subprocess.run(
            [*LOGBROKER, *arguments, *at],
            stdin=endless,
            capture_output=True,
            env=ENVIRONMENT,
            timeout=60,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES)),
        )
    error = ended.stderr.decode()
    assert ended.returncode == 1, error
    assert told in error
    assert "Traceback" not in error
