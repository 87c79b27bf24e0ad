"""The configuration file: what is refused, and that it is said where."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.config import BrokerConfig, load_broker_config
from logbroker.errors import ConfigFileError


@pytest.mark.parametrize(
    "line",
    [
        "thread_switch_interval_seconds = 0.0",
        "checkpoint_seconds = nan",
        "checkpoint_seconds = 0.0",
        "retention_check_seconds = inf",
        "fetch_memory_wait_seconds = -1.0",
        "max_request_bytes = 99999999999",
        "max_response_bytes = 0",
        "max_open_segments = -1",
        "max_fetch_bytes_in_flight = -1",
        "max_groups = 0",
        "max_group_members = 0",
        "reconnect_grace_seconds = -0.1",
        "offsets_retention_seconds = 0.0",
    ],
)
def test_a_value_out_of_bounds_is_refused_by_name(tmp_path: Path, line: str) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text(line + "\n")
    with pytest.raises(ConfigFileError, match=f"{path}.*{line.split()[0]}"):
        load_broker_config(path)


def test_the_defaults_are_within_their_bounds() -> None:
    BrokerConfig()


@pytest.mark.parametrize("line", ['"priority.bands" = "hot=5-9:1,cold=0-4:1"', '"priority.routing" = "key"'])
def test_bands_are_no_default_of_topics(tmp_path: Path, line: str) -> None:
    """Else another default would change topics whose records lie by the old one."""
    path = tmp_path / "logbroker.toml"
    path.write_text(f"[topic_defaults]\n{line}\n")
    with pytest.raises(ConfigFileError, match="is no default: give it to each topic"):
        load_broker_config(path)
