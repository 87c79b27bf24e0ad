"""Tables of methods: all of a service must be there, but for a service that another package describes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from grpc_health.v1 import health_pb2

from logbroker.grpc_api.methods import method_table

HEALTH = health_pb2.DESCRIPTOR.services_by_name["Health"]


async def check(request: Any, context: Any) -> Any:
    return health_pb2.HealthCheckResponse()


def test_a_method_that_a_newer_version_of_a_package_brings_is_not_served() -> None:
    """As `List` of grpc.health.v1, of which grpcio-health-checking 1.81 does not know yet."""
    table = method_table(HEALTH, SimpleNamespace(check=check), only=("Check",))

    def handler(name: str) -> object:
        return table.service(cast("grpc.HandlerCallDetails", SimpleNamespace(method=f"/{HEALTH.full_name}/{name}")))

    assert handler("Check") is not None
    assert handler("Watch") is None


def test_a_method_of_our_own_services_cannot_be_forgotten() -> None:
    with pytest.raises(AttributeError, match="watch"):
        method_table(HEALTH, SimpleNamespace(check=check))
