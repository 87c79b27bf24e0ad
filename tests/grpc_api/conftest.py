"""One broker process for the whole folder; tests use topics of their own."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest

from logbroker.embedded_broker import EmbeddedBroker, embedded
from tests.grpc_api.api import Api

_numbers = count()


@pytest.fixture(scope="session")
def shared_broker() -> Iterator[EmbeddedBroker]:
    with embedded(max_partitions_per_topic=200, max_partitions=2000) as broker:
        yield broker


@pytest.fixture
def api(shared_broker: EmbeddedBroker) -> Iterator[Api]:
    found = Api(shared_broker.address)
    yield found
    found.channel.close()


@pytest.fixture
def topic(api: Api) -> str:
    """A new topic with four partitions."""
    name = f"topic-{next(_numbers)}"
    api.create(name, 4)
    return name
