"""A real Kafka cluster in KRaft mode: nodes that are brokers and controllers, each a process of its own."""

from __future__ import annotations

import asyncio
import functools
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from compare.peers.server import HOST, ServerProcess, free_port
from logbroker.broker.cluster_engine.connection.link import ClusterLink, PassingError
from logbroker.kafka_wire.apis import DELETE_TOPICS, METADATA
from logbroker.kafka_wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopicState
from logbroker.kafka_wire.messages.metadata import MetadataRequest

_POM: Final = Path(__file__).resolve().parents[1] / "kafka-pom.xml"
_RESOLVE: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_DOWNLOAD_SECONDS: Final = 300
_CLUSTER_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.05
SMALL_JVM: Final = ("-Xmx320m", "-Xms320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Quick to start, and slow afterwards."""
_KAFKAS_OWN: Final = frozenset({"__consumer_offsets", "__transaction_state"})


@functools.cache
def class_path() -> tuple[str, str]:
    """Return the jars of Kafka, and what is missing to get and run them; "": nothing."""
    missing = [tool for tool in ("java", "mvn") if shutil.which(tool) is None]
    if missing:
        return "", f"not installed here: {', '.join(missing)}"
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "class-path")
        command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums", "--file", str(_POM), _RESOLVE]
        try:
            done = subprocess.run(
                [*command, f"-Dmdep.outputFile={output}"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_DOWNLOAD_SECONDS,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "", f"Maven did not get Kafka's jars within {_DOWNLOAD_SECONDS} s"
        if done.returncode:
            return "", "Maven cannot get Kafka's jars; is its registry in reach?"
        return output.read_text(encoding="utf-8").strip(), ""


class KafkaCluster:
    """Some nodes. Everything lies in `directory`."""

    def __init__(
        self,
        directory: Path,
        nodes: int,
        jvm: Sequence[str] = SMALL_JVM,
        more_settings: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        self._jars, _ = class_path()
        ports = [(free_port(), free_port()) for _ in range(nodes)]
        self.addresses: Final = ",".join(f"{HOST}:{port}" for port, _ in ports)
        voters = ",".join(f"{number}@{HOST}:{port}" for number, (_, port) in enumerate(ports, 1))
        cluster_id = urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")
        self._nodes: list[ServerProcess] = []
        self._threads = ThreadPoolExecutor(nodes)
        """The nodes end with the threads that started them (`ServerProcess`)."""
        for number, (port, controller_port) in enumerate(ports, 1):
            home = directory / str(number)
            home.mkdir()
            settings = {
                "process.roles": "broker,controller",
                "node.id": number,
                "controller.quorum.voters": voters,
                "controller.listener.names": "CONTROLLER",
                "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
                "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
                "log.dirs": home / "data",
                "auto.create.topics.enable": "false",
                "default.replication.factor": min(nodes, 3),
                "min.insync.replicas": min(nodes, 2),
                "offsets.topic.replication.factor": min(nodes, 3),
                "offsets.topic.num.partitions": 3,
                "transaction.state.log.replication.factor": min(nodes, 3),
                "transaction.state.log.min.isr": min(nodes, 2),
                "transaction.state.log.num.partitions": 3,
                "group.initial.rebalance.delay.ms": 0,
                # A killed node is noticed soon.
                "broker.session.timeout.ms": 6_000,
                "controller.quorum.election.timeout.ms": 1_000,
                **more_settings,
            }
            config_path = home / "server.properties"
            config_path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
            self._java("kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", f"--config={config_path}")
            command = ["java", *jvm, "-cp", self._jars, "kafka.Kafka", str(config_path)]
            self._nodes.append(ServerProcess(command, address=f"{HOST}:{port}", directory=home))

    def _java(self, *command: str) -> None:
        subprocess.run(["java", "-cp", self._jars, *command], check=True, capture_output=True, env={**os.environ})

    async def start(self) -> None:
        """Start all nodes, and return when each knows the others."""
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(self._threads, node.start) for node in self._nodes))
        async with asyncio.timeout(_CLUSTER_SECONDS):
            await self._all_up()

    async def _all_up(self) -> None:
        link = ClusterLink(self.addresses)
        try:
            await link.open()
            while len(link.nodes) < len(self._nodes):
                await asyncio.sleep(_LOOK_SECONDS)
                await link.refresh()
        finally:
            await link.close()

    def kill(self, number: int) -> None:
        """Kill a node, the first of which has number 0."""
        self._nodes[number].kill()

    @contextmanager
    def frozen(self, number: int) -> Iterator[None]:
        """Let a node stand still."""
        self._nodes[number].signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._nodes[number].signal(signal.SIGCONT)

    async def start_again(self, number: int) -> None:
        """Start a node that was killed, and wait until the others know it."""
        await asyncio.get_running_loop().run_in_executor(self._threads, self._nodes[number].start)
        async with asyncio.timeout(_CLUSTER_SECONDS):
            await self._all_up()

    def end(self) -> None:
        """Leave nothing running."""
        for node in self._nodes:
            node.kill()
        self._threads.shutdown()

    def resident_bytes(self) -> int:
        """Return the resident memory of all nodes."""
        return sum(node.resident_bytes() for node in self._nodes)

    async def wipe(self) -> None:
        """Delete all topics but Kafka's own, and return when they are gone."""
        link = ClusterLink(self.addresses)
        await link.open()
        try:
            await _delete(link, sorted(await _named_by_any(link) - _KAFKAS_OWN))
        finally:
            await link.close()


async def _delete(link: ClusterLink, names: Sequence[str]) -> None:
    """Delete topics, and return when no node names them any more: a new topic may get the name of an old one."""
    topics = [DeleteTopicsRequestTopicState(name=name) for name in names]
    async with asyncio.timeout(_CLUSTER_SECONDS):
        while not (await _named_by_any(link)).isdisjoint(names):
            try:
                request = DeleteTopicsRequest(topics=topics, timeout_ms=10_000)
                await link.ask(link.controller, DELETE_TOPICS, request)
                await link.refresh()
            except PassingError:
                await asyncio.sleep(_LOOK_SECONDS)


async def _named_by_any(link: ClusterLink) -> set[str]:
    """Return the names of all topics that some node knows."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answers = await asyncio.gather(*(link.ask(node, METADATA, request) for node in link.nodes))
    return {topic.name for answer in answers for topic in answer.topics}
