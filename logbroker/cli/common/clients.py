"""The clients of commands. They are synchronous clients that first check whether a broker answers.

A command checks its own arguments before it makes a client, so wrong arguments are reported first.
"""

from __future__ import annotations

from typing import Any, Final

import click

from logbroker.cli.common.options import WAIT_SECONDS
from logbroker.cli.common.reach import reach
from logbroker.client import sync
from logbroker.client.transport import brokers

_REACHED: Final = "logbroker.reached"


class _Reached:
    """Raises BrokerUnavailableError if no broker answers the first client of a command. Later clients wait for a broker
    that is away, as all clients do."""

    def __init__(self, broker: str, *arguments: Any, **options: Any) -> None:
        context = click.get_current_context()
        if context.meta.get(_REACHED) != broker:
            brokers.begin_with(broker, reach(broker, context.meta.get(WAIT_SECONDS, 0)))
            context.meta[_REACHED] = broker
        super().__init__(broker, *arguments, **options)  # type: ignore[call-arg]


class CommandAdmin(_Reached, sync.Admin):
    """`logbroker.client.sync.Admin` of a command."""


class CommandQueueAdmin(_Reached, sync.QueueAdmin):
    """`logbroker.client.sync.QueueAdmin` of a command."""


class CommandProducer(_Reached, sync.Producer):
    """`logbroker.client.sync.Producer` of a command."""


class CommandConsumer(_Reached, sync.Consumer):
    """`logbroker.client.sync.Consumer` of a command."""


class CommandWorker(_Reached, sync.Worker):
    """`logbroker.client.sync.Worker` of a command."""
