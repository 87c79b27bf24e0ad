"""`logbroker config`: every setting, as a table, alone and as JSON."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from logbroker.cli.main import run
from logbroker.config import BROKER_SETTINGS, TOPIC_SETTINGS, load_broker_config
from logbroker.errors import ConfigFileError
from logbroker.queues.model.settings import QUEUE_SETTINGS

KINDS = {"broker": BROKER_SETTINGS, "topic": TOPIC_SETTINGS, "queue": QUEUE_SETTINGS}


@pytest.mark.parametrize("kind", KINDS)
def test_the_table_has_every_setting_of_a_kind(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--kind", kind]) == 0
    shown = capsys.readouterr().out
    names = [line.split()[0] for line in shown.splitlines() if line.startswith(" ") and line[1:2].strip()]
    assert [name for name in names if name in {each.name for each in KINDS[kind]}] == [
        each.name for each in KINDS[kind]
    ]


def test_json_has_all_settings_once_with_their_bounds(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "--json"]) == 0
    documents = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in documents] == [each.name for kind in KINDS.values() for each in kind]
    assert len({each["name"] for each in documents}) == len(documents)
    (retention,) = (each for each in documents if each["name"] == "retention.ms")
    assert (retention["kind"], retention["default"], retention["unit"]) == ("topic", 604_800_000, "ms")
    assert (retention["minimum"], retention["maximum"]) == (-1, 2**63 - 1)


def test_one_setting_is_shown_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "max_partitions"]) == 0
    shown = capsys.readouterr().out
    assert "100,000,000" in shown
    assert "max_partitions_per_topic" not in shown
    assert run(["config", "priority", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["choices"] == ["none", "strict", "weighted", "ageing"]


def test_an_unknown_name_is_refused_with_similar_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "retention_ms"]) == 2
    assert "similar ones: retention.ms, " in capsys.readouterr().err
    assert run(["config", "retention.ms", "--kind", "broker"]) == 2
    assert "similar ones: retention_check_seconds" in capsys.readouterr().err


def test_a_settings_file_is_checked_as_a_start_does(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "logbroker.toml"
    path.write_text('data_dir = "nowhere"\n[topic_defaults]\n"retention.ms" = 5\n', encoding="utf-8")
    assert run(["config", "--check", str(path)]) == 0
    assert capsys.readouterr().out == f"{path}: the settings are valid\n"
    assert run(["config", "--check", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"file": str(path), "valid": True}
    path.write_text('[topic_defaults]\n"retention.msec" = 5\n', encoding="utf-8")
    assert run(["config", "--check", str(path)]) == 1
    with pytest.raises(ConfigFileError) as failed:
        load_broker_config(path)
    assert capsys.readouterr().err == f"logbroker: {failed.value}\n"
    assert run(["config", "--check", str(path), "--kind", "broker"]) == 2
