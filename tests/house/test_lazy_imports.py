"""Modules that must not be loaded: start-up time and memory of the broker and of users' test runs depend on it."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("logbroker", {"grpc", "google", "click", "asyncio", "logbroker.client", "logbroker.embedded_broker"}),
        ("logbroker.pytest_plugin", {"grpc", "google", "msgspec", "logbroker.client"}),
        ("logbroker.embedded_broker", {"grpc", "google", "asyncio", "logbroker.client"}),
        (
            "logbroker.cli.serve",
            {
                "rich",
                "aiokafka",
                "logbroker.client",
                "logbroker.embedded_broker",
                "logbroker.kafka_api",
                "logbroker.kafka_wire",
                "pytest",
            },
        ),
        ("logbroker.client", {"rich", "click", "lmdb", "logbroker.broker", "logbroker.storage", "logbroker.grpc_api"}),
    ],
)
def test_importing_a_module_leaves_these_out(module: str, unwanted: set[str]) -> None:
    program = f"import sys, {module}; print(*sys.modules)"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert unwanted.intersection(result.stdout.split()) == set()
