"""Processes that fork: clients work in the child, or say at once why not; the parent notices nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from logbroker.client import sync
from logbroker.embedded_broker import EmbeddedBroker

END_SECONDS = 55
REFUSED = "ForkedProcessError"


@pytest.fixture
def broker(logbroker_broker: EmbeddedBroker) -> EmbeddedBroker:
    with sync.Admin(logbroker_broker.address) as admin, sync.QueueAdmin(logbroker_broker.address) as queues:
        admin.create_topic("t", 1)
        queues.create_queue("q", "t", sync.QueueSettings())
        with sync.Producer(logbroker_broker.address) as producer:
            for number in range(20):
                producer.send("t", b"of the test", b"%d" % number)
    return logbroker_broker


def play(scene: str, address: str, *, is_quiet: bool = True) -> dict[str, Any]:
    """Play a scene of `tests.client.forks`; return its outcomes."""
    environment = {name: value for name, value in os.environ.items() if name != "GRPC_ENABLE_FORK_SUPPORT"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.client.forks", scene, address],
        capture_output=True,
        text=True,
        timeout=END_SECONDS,
        check=False,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    assert not is_quiet or done.stderr == ""
    outcomes: dict[str, Any] = json.loads(done.stdout)
    return outcomes


def values(address: str) -> list[bytes | None]:
    with sync.Consumer(address) as consumer:
        consumer.assign("t")
        return [record.value for record in consumer.until_end()]


@pytest.mark.prove
def test_what_the_parent_uses_is_refused_in_a_child_at_once_and_goes_on_in_the_parent(broker: EmbeddedBroker) -> None:
    outcomes = play("used", broker.address)
    assert outcomes.pop("offset of the parent's last") == 21
    assert outcomes.pop("warnings") == []
    ends = {name: outcomes.pop(name) for name in list(outcomes) if name.startswith(("close", "forget", "stop"))}
    assert set(ends.values()) == {"None", "done"}, ends
    assert set(outcomes.values()) == {REFUSED}, outcomes
    # The children have sent neither their own records nor the parent's.
    assert values(broker.address) == [b"of the test"] * 20 + [b"of the parent", b"the parent's last"]


@pytest.mark.prove
def test_children_that_use_no_client_end_as_they_should(broker: EmbeddedBroker) -> None:
    outcomes = play("many", broker.address)
    assert set(outcomes.values()) == {"done"}, outcomes


@pytest.mark.prove
@pytest.mark.parametrize("scene", ["unused", "closed"])
def test_clients_work_in_a_child_where_none_was_in_use_at_the_fork(broker: EmbeddedBroker, scene: str) -> None:
    outcomes = play(scene, broker.address)
    with_closed = [outcomes.pop(name) for name in list(outcomes) if name.startswith("send with the closed one")]
    assert set(with_closed) <= {"BrokerUnavailableError", REFUSED}
    assert set(outcomes.values()) == {"works"}, outcomes


@pytest.mark.prove
def test_clients_that_were_made_before_forks_are_others_in_each_child(broker: EmbeddedBroker) -> None:
    """Two workers with one id and incarnation would take the stream, and what they hold, from each other."""
    names = [name for told in play("preloaded", broker.address).values() for name in told.split()]
    assert len(names) == 3 * 6
    assert len(set(names)) == 3 * 5, "worker and member have their process in common"


@pytest.mark.prove
def test_a_child_that_is_forked_in_a_callback_ends(broker: EmbeddedBroker) -> None:
    """Its event loop does not work any more, and was run again and again."""
    assert play("in_a_callback", broker.address, is_quiet=False) == {"child": "ends"}


@pytest.mark.prove
def test_a_fork_waits_for_the_end_of_what_closed_clients_leave_behind(broker: EmbeddedBroker) -> None:
    assert play("closed_late", broker.address) == {"left": True, "new": "works"}


def test_forks_in_other_threads(broker: EmbeddedBroker) -> None:
    outcomes = play("in_threads", broker.address)
    assert outcomes.pop("offset of the parent's last") == 21
    assert outcomes.pop("after") == "works"
    ends = {name: outcomes.pop(name) for name in list(outcomes) if name.startswith(("close", "exit"))}
    assert set(ends.values()) == {"None", "done"}, ends
    assert set(outcomes.values()) == {REFUSED}, outcomes
    assert b"of a child" not in values(broker.address)[:22]


@pytest.mark.prove
def test_a_fork_beside_calls_of_other_threads(broker: EmbeddedBroker) -> None:
    outcomes = play("in_a_call", broker.address)
    ends = {name: outcomes.pop(name) for name in list(outcomes) if name.startswith("close")}
    assert set(ends.values()) == {"None"}, ends
    assert set(outcomes.values()) == {REFUSED}, outcomes
    assert b"of a child" not in values(broker.address)


def test_processes_of_multiprocessing(broker: EmbeddedBroker) -> None:
    assert play("processes", broker.address) == {"fork": REFUSED, "spawn": "works"}


def test_grpc_that_somebody_else_uses_in_the_parent(broker: EmbeddedBroker) -> None:
    assert play("elsewhere", broker.address) == {"new": REFUSED}


def test_asynchronous_clients(broker: EmbeddedBroker) -> None:
    outcomes = play("from_asyncio", broker.address)
    assert outcomes.pop("close") == "None"
    assert set(outcomes.values()) == {REFUSED}, outcomes
    assert values(broker.address)[20:] == [b"of the parent"] * 2


@pytest.mark.prove
def test_embedded_brokers_stay_with_the_process_that_started_them(broker: EmbeddedBroker) -> None:
    assert play("with_brokers", broker.address) == {
        "leave": "left",
        "stop": "None",
        "start": REFUSED,
        "own": "works",
        "parent": "works",
        "after": False,
    }
