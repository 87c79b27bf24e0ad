"""Admin clients of other languages, and Kafka's own tools, unchanged: what they do with topics and groups."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

import logbroker
from logbroker.client.sync import Admin, TopicPartition
from logbroker.embedded_broker import EmbeddedBroker
from logbroker.errors import UnknownGroupError, UnknownTopicError
from tests.interop.kafka.programs import CLIENTS, ForeignClient
from tests.interop.kafka.toolchains import MissingToolError, program_command
from tests.kafka_api.test_admin_clients import AdminOf, follow_a_topic

JAVA: Final = CLIENTS[0]


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with logbroker.embedded(kafka=True, group_initial_rebalance_delay_seconds=0) as broker:
        yield broker


def skip_without(language: str) -> None:
    try:
        program_command(language)
    except MissingToolError as error:
        pytest.skip(str(error))


@pytest.mark.prove
@pytest.mark.parametrize("client", CLIENTS, ids=repr)
def test_a_topic_from_its_creation_to_its_deletion(broker: EmbeddedBroker, client: ForeignClient) -> None:
    skip_without(client.language)
    follow_a_topic(broker, AdminOf(client.name, client.create, client.manage, client.delete, client.describes_more))


class Tools:
    """Kafka's command line tools, with the arguments that people give them."""

    def __init__(self, address: str) -> None:
        self._address = address

    def run(self, name: str, *arguments: str, text: str = "") -> str:
        """Return what a tool writes."""
        where = ["--bootstrap-server", self._address]
        tool = f"org.apache.kafka.tools.{name}"
        code, written = JAVA.ask(do="tool", tool=tool, arguments=[*where, *arguments], input=text)
        assert code == 0, f"{name} {arguments} ended with {code}\n{written}"
        return str(written)


@pytest.mark.prove
def test_the_command_line_tools(broker: EmbeddedBroker, tmp_path: Path) -> None:
    skip_without("java")
    tools = Tools(broker.kafka_address)
    topic = ("--topic", "tools")
    assert "Created topic tools" in tools.run(
        "TopicCommand", "--create", *topic, "--partitions", "2", "--config", "retention.ms=1000000"
    )
    assert "tools" in tools.run("TopicCommand", "--list").split()
    assert re.search(r"PartitionCount: 2\b.*retention.ms=1000000", tools.run("TopicCommand", "--describe", *topic))
    with Admin(broker.address) as admin:
        topic_id = urlsafe_b64encode(admin.describe_topic("tools").info.id).decode().rstrip("=")
    assert "PartitionCount: 2" in tools.run("TopicCommand", "--describe", f"--topic-id={topic_id}")
    kind = ("--entity-type", "topics", "--entity-name", "tools")
    tools.run("ConfigCommand", "--alter", *kind, "--add-config", "retention.ms=2000000")
    assert "retention.ms=2000000" in tools.run("ConfigCommand", "--describe", *kind)

    lines = [f"key-{number % 5}:value-{number}" for number in range(100)]
    separated = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        text = "".join(f"{line}-{codec}\n" for line in lines)
        tools.run("ConsoleProducer", *topic, *separated, "--compression-codec", codec, text=text)
    shown = ("--formatter-property", "print.key=true", "--formatter-property", "key.separator=:")
    read = tools.run(
        "consumer.ConsoleConsumer", *topic, *shown, "--from-beginning", "--max-messages", "500", "--group", "console"
    )
    wanted = {f"{line}-{codec}" for line in lines for codec in ("none", "gzip", "snappy", "lz4", "zstd")}
    assert set(read.splitlines()) == wanted
    offsets = dict(
        line.split(":")[1:] for line in tools.run("GetOffsetShell", *topic).splitlines() if line.startswith("tools:")
    )
    assert set(offsets) == {"0", "1"}
    assert sum(map(int, offsets.values())) == 500

    assert "console" in tools.run("consumer.group.ConsumerGroupCommand", "--list").split()
    group = ("--group", "console")
    described = tools.run("consumer.group.ConsumerGroupCommand", "--describe", *group)
    rows = [line.split() for line in described.splitlines() if line.startswith("console")]
    assert {row[2]: (row[3], row[5]) for row in rows} == {number: (end, "0") for number, end in offsets.items()}
    reset = ("--reset-offsets", "--to-earliest", "--all-topics", "--execute")
    tools.run("consumer.group.ConsumerGroupCommand", *reset, *group)
    with Admin(broker.address) as admin:
        assert admin.fetch_offsets("console")[TopicPartition("tools", 0)].offset == 0
        tools.run("consumer.group.ConsumerGroupCommand", "--delete", *group)
        with pytest.raises(UnknownGroupError):
            admin.describe_group("console")

    places = {"partitions": [{"topic": "tools", "partition": 0, "offset": 3}], "version": 1}
    (tmp_path / "places.json").write_text(json.dumps(places))
    deleted = tools.run("DeleteRecordsCommand", "--offset-json-file", str(tmp_path / "places.json"))
    assert "low_watermark: 3" in deleted

    assert str(broker.data_dir) in tools.run("LogDirsCommand", "--describe", "--topic-list", "tools")
    assert "ProducerId" in tools.run("TransactionsCommand", "describe-producers", *topic, "--partition", "0")
    tools.run("TopicCommand", "--alter", *topic, "--partitions", "3")
    performed = tools.run(
        "ProducerPerformance", *topic, "--num-records", "1000", "--record-size", "100", "--throughput", "-1",
        "--producer-props", "acks=all",
    )  # fmt: skip
    assert "1000 records sent" in performed
    with Admin(broker.address) as admin:
        found = admin.describe_topic("tools")
        assert (found.info.partitions, sum(each.high_watermark for each in found.partitions)) == (3, 1500)
        tools.run("TopicCommand", "--delete", *topic)
        with pytest.raises(UnknownTopicError):
            admin.describe_topic("tools")
