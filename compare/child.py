"""A process of its own for one peer's client library.

    python -m compare.child PEER HOST:PORT

It prints `null` when the library is imported. Then each line of standard input is {"call": NAME, ...}, answered by one
line, {"result": ...} or {"error": TEXT}, until standard input ends.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec

from compare.all_peers import PEERS
from compare.load import Job, Load, Published, Worked
from compare.peers.peer import Client
from compare.peers.server import accepts
from compare.tally import Tally
from logbroker.errors import LogbrokerError
from logbroker.types import Durability

_RETRY_SECONDS: Final = 0.01
_GIVE_UP_SECONDS: Final = 180.0


class Create(msgspec.Struct, tag_field="call", tag="create"):
    """Make a topic."""

    topic: str
    shards: int
    durability: Durability

    def run(self, client: Client, _address: str) -> None:
        """Do it."""
        client.create(self.topic, self.shards, self.durability)


class Publish(msgspec.Struct, tag_field="call", tag="publish"):
    """Send a load."""

    load: Load

    def run(self, client: Client, _address: str) -> Published:
        """Do it."""
        return client.publish(self.load)


class Replay(msgspec.Struct, tag_field="call", tag="replay"):
    """Read a topic."""

    topic: str
    records: int

    def run(self, client: Client, _address: str) -> float:
        """Seconds."""
        return client.replay(self.topic, self.records)


class Latencies(msgspec.Struct, tag_field="call", tag="latencies"):
    """Send at a steady pace, and receive."""

    topic: str
    warm: int
    """Records that come first and do not count: they wait for connections to be made."""
    records: int
    per_second: float

    def run(self, client: Client, _address: str) -> list[float]:
        """Seconds of each record that counts."""
        found = client.latencies(self.topic, self.warm + self.records, self.per_second)
        if min(found) < 0:
            raise LogbrokerError(f"{sum(each < 0 for each in found):,} records were not received")
        return found[self.warm :]


class Prepare(msgspec.Struct, tag_field="call", tag="prepare"):
    """Make what workers need."""

    job: Job

    def run(self, client: Client, _address: str) -> None:
        """Do it."""
        client.prepare(self.job)


class Work(msgspec.Struct, tag_field="call", tag="work"):
    """Be one of the workers."""

    job: Job

    def run(self, client: Client, _address: str) -> Worked:
        """Work until all is done."""
        job = self.job
        with Tally(Path(job.tally_path), worker=job.worker, workers=job.workers, records=job.records) as tally:
            return client.work(job, tally)


class Await(msgspec.Struct, tag_field="call", tag="await"):
    """Wait for a server that is being started: ask until it has so many records, or, with `create`, until it has taken
    the first one of a new topic."""

    topic: str
    shards: int
    records: int
    durability: Durability
    create: bool = False

    def run(self, client: Client, address: str) -> float:
        """Return when, on the machine's monotonic clock; raises LogbrokerError after three minutes."""
        end = time.monotonic() + _GIVE_UP_SECONDS
        problem: object = "it does not listen"
        attempt = 0
        while time.monotonic() < end:
            attempt += 1
            try:
                if not accepts(address):
                    pass
                elif self.create:
                    topic = f"{self.topic}-{attempt}"  # one that failed may be there all the same
                    client.create(topic, self.shards, self.durability)
                    client.publish(Load(topic, self.records, 100))
                    return time.monotonic()
                elif (found := client.count(self.topic, self.shards)) == self.records:
                    return time.monotonic()
                else:
                    problem = f"it has {found:,} of {self.records:,} records"
            except Exception as error:
                problem = error  # whatever a library raises while its server starts
            time.sleep(_RETRY_SECONDS)
        raise LogbrokerError(f"the server was not there in time: {problem}")


Call = Create | Publish | Replay | Latencies | Prepare | Work | Await


def main() -> None:
    """Serve calls until standard input ends."""
    name, address = sys.argv[1:]
    logging.disable()  # what matters is raised; libraries also log each retry
    client = PEERS[name].client(address)
    _say(None)
    for line in sys.stdin.buffer:
        call = msgspec.json.decode(line, type=Call)
        run: Callable[[Client, str], Any] = call.run
        try:
            _say({"result": run(client, address)})
        except Exception as error:
            _say({"error": f"{type(error).__name__}: {error}"})


def _say(what: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(what) + b"\n")
    sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
