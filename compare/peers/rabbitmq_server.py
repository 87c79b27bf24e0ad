"""RabbitMQ with its own Erlang port mapper, so that none is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from compare.peers.server import HOST, ServerProcess, free_port

COMMAND: Final = "/usr/lib/rabbitmq/bin/rabbitmq-server"
"""The one in the path changes the user first."""
INSTALL: Final = "make peers; apt-get install rabbitmq-server"


class RabbitServer:
    """A node; `address` is where its AMQP or its stream listener is."""

    def __init__(self, directory: Path, *, streams: bool) -> None:
        port, stream_port, mapper_port = free_port(), free_port(), free_port()
        config_path = directory / "rabbitmq.conf"
        settings = {
            "listeners.tcp.1": f"{HOST}:{port}",
            "loopback_users": "none",
            "stream.listeners.tcp.1": f"{HOST}:{stream_port}",
            "stream.advertised_host": HOST,
            "stream.advertised_port": stream_port,
        }
        config_path.write_text("".join(f"{name} = {value}\n" for name, value in settings.items()), encoding="utf-8")
        plugins_path = directory / "enabled_plugins"
        plugins_path.write_text("[rabbitmq_stream].\n" if streams else "[].\n", encoding="utf-8")
        environment = {
            "HOME": str(directory),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": HOST,
            "RABBITMQ_NODENAME": f"bench-{port}@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(directory / "data"),
            "RABBITMQ_LOG_BASE": str(directory / "log"),
            "RABBITMQ_CONFIG_FILE": str(config_path),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins_path),
        }
        self._mapper = ServerProcess(
            ["epmd", "-port", str(mapper_port), "-address", HOST],
            address=f"{HOST}:{mapper_port}",
            directory=directory,
        )
        self._node = ServerProcess(
            [COMMAND],
            address=f"{HOST}:{stream_port if streams else port}",
            directory=directory,
            environment=environment,
        )

    @property
    def address(self) -> str:
        """HOST:PORT for the client."""
        return self._node.address

    def start(self) -> None:
        """Start the port mapper, then the node."""
        self._mapper.start()
        self._node.start()

    def stop(self) -> None:
        """Stop both."""
        self._node.stop()
        self._mapper.stop()

    def kill(self) -> None:
        """Kill both."""
        self._node.kill()
        self._mapper.kill()

    def resident_bytes(self) -> int:
        """Return the resident memory of both processes."""
        return self._node.resident_bytes() + self._mapper.resident_bytes()


def lacks() -> str | None:
    """Return a note where there is no RabbitMQ."""
    return None if Path(COMMAND).exists() else COMMAND


def version() -> str:
    """Return the version of the installed package."""
    [found] = Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*")
    return found.name.partition("-")[2]
