"""Apache Kafka as one process in KRaft mode, from its jars."""

from __future__ import annotations

import re
import subprocess
import uuid
from base64 import urlsafe_b64encode
from pathlib import Path
from typing import Final

from compare.peers.server import HOST, ServerProcess, free_port
from logbroker.errors import BrokerUnavailableError
from logbroker.types import Durability

JARS: Final = Path("build/peers/kafka")
"""The directory in which `make peers` puts the jars, seen from the checkout."""
INSTALL: Final = "make peers, in a checkout, which is where to run this; it needs Java 17 or newer, and Maven"
PROMISES: Final = {
    Durability.WRITTEN: "the default: acks=all of one replica, answered after write; the kernel syncs when it likes",
    Durability.SYNCED: "log.flush.interval.messages=1: each append is synced before it is answered",
}
MEMORY_NOTE: Final = "the JVM has a heap of 1 GB, as Kafka's own start script gives it"
# That script's settings.
JVM: Final = [
    "-Xmx1G",
    "-Xms1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-XX:MaxInlineLevel=15",
    "-Djava.awt.headless=true",
]


def lacking_jars() -> str | None:
    """Return a note where the jars are missing."""
    return None if list(JARS.glob("kafka_2.13-*.jar")) else f"Kafka's jars in {JARS}"


def version() -> str:
    """Return the version of the jars."""
    [jar] = JARS.glob("kafka_2.13-*.jar")
    found = re.search(r"kafka_2\.13-(.+)\.jar", jar.name)
    return found[1] if found else jar.name


def server(directory: Path, durability: Durability) -> ServerProcess:
    """A broker that is its own controller, on a formatted directory."""
    port, controller_port = free_port(), free_port()
    settings = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "controller.listener.names": "CONTROLLER",
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "log.dirs": directory / "data",
        "auto.create.topics.enable": "false",
        # One broker has one replica of everything.
        "offsets.topic.replication.factor": 1,
        "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1,
        "share.coordinator.state.topic.replication.factor": 1,
        "share.coordinator.state.topic.min.isr": 1,
        # As many as both workers together may have in hand at logbroker.
        "group.share.max.partition.max.record.locks": 4000,
        "group.share.partition.max.record.locks": 4000,
    }
    if durability is Durability.SYNCED:
        settings["log.flush.interval.messages"] = 1
    config_path = directory / "server.properties"
    config_path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    java = ["java", *JVM, "-cp", f"{JARS.resolve()}/*"]
    _format(config_path)
    return ServerProcess([*java, "kafka.Kafka", str(config_path)], address=f"{HOST}:{port}", directory=directory)


def _format(config_path: Path) -> None:
    cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
    tool = ["java", "-cp", f"{JARS.resolve()}/*", "kafka.tools.StorageTool", "format"]
    # With = because an id may begin with a dash.
    done = subprocess.run(
        [*tool, f"--cluster-id={cluster_id}", f"--config={config_path}"], capture_output=True, text=True
    )
    if done.returncode:
        words = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise BrokerUnavailableError(f"Kafka's directory could not be formatted: {' / '.join(words)}")
