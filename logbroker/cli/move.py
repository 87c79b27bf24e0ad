"""`logbroker move`: moves a data directory to a cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import click

from logbroker.address import parse_addresses
from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType
from logbroker.cli.common.lines import counted, tell, write_line
from logbroker.cli.common.options import json_option
from logbroker.cli.common.stops import Interrupter
from logbroker.config import BrokerConfig
from logbroker.errors import quoted
from logbroker.texts import size_text
from logbroker.tools.move.move import MovePlan, check_move, plan_move
from logbroker.tools.move.move import move as carry_out
from logbroker.tools.move.source import open_source

_MIB: Final = 1 << 20


def _nodes(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    try:
        return ",".join(map(str, parse_addresses(value)))
    except ValueError as error:
        raise click.BadParameter(f"{quoted(value)} {error}") from None


@click.command()
@click.option(
    "--data-dir",
    metavar="DIR",
    type=PathType(),
    default=BrokerConfig().data_dir,
    show_default=True,
    help="Data directory to move. It is only read.",
)
@click.option(
    "--cluster",
    metavar="HOST:PORT,...",
    required=True,
    callback=_nodes,
    help="Addresses of some nodes of the cluster.",
)
@click.option("--dry-run", is_flag=True, help="Check both sides, show what would be moved, and move nothing.")
@json_option
def move(data_dir: Path, cluster: str, dry_run: bool, as_json: bool) -> None:
    """Move the topics and groups of a data directory to a cluster that speaks Kafka's protocol (experimental).

    Stop the broker, and all gateways of the cluster. The command creates the topics, appends their records at the same
    offsets, writes committed offsets and the state of queue groups, reads everything back and compares it. At the end
    the first gateway goes on where the broker has stopped: consumers at their offsets, queue groups with what was left.

    The data directory stays as it is, and the whole of it is moved: delete topics and groups that are not to be moved
    before. A topic or group of the same name on the cluster is refused. So is a partition with missing or damaged
    records, and a queue group that has dead letters or outputs on their way. If the command is interrupted, run it
    again: it goes on. To give up instead, delete the topics that it has created.

    \b
    Examples:
      logbroker move --data-dir ./data --cluster kafka-1:9092,kafka-2:9092 --dry-run
      logbroker move --data-dir ./data --cluster kafka-1:9092,kafka-2:9092
      logbroker serve --cluster kafka-1:9092,kafka-2:9092
    """
    with open_source(data_dir) as source:
        with _progress("reading", None) as advance:
            plan = plan_move(source, advance)
        if not as_json:
            _show(plan)
        if dry_run:
            _run(check_move(source, cluster))
        else:
            size_bytes = sum(topic.bytes for topic in plan.topics)
            with _progress("copying and comparing", 2 * size_bytes) as advance:
                _run(carry_out(source, cluster, advance))
    if as_json:
        terminal.write_json({"topics": plan.topics, "groups": plan.groups, "moved": not dry_run})
    elif dry_run:
        tell("all of this can be moved")
    else:
        records = sum(topic.records for topic in plan.topics)
        topics, groups = counted(len(plan.topics), "topic"), counted(len(plan.groups), "group")
        tell(
            f"moved and verified: {topics} with {counted(records, 'record')}, {groups}; {data_dir} is as it was, do not"
            " start a broker on it any more"
        )


def _run(work: Coroutine[Any, Any, None]) -> None:
    click.get_current_context().ensure_object(Interrupter).run(work)


@contextmanager
def _progress(what: str, size_bytes: int | None) -> Iterator[Callable[[int], None]]:
    done = 0
    with terminal.progress(what, None if size_bytes is None else -(-size_bytes // _MIB), "MiB") as count:

        def advance(more_bytes: int) -> None:
            nonlocal done
            done += more_bytes
            count(-(-done // _MIB))

        yield advance


def _show(plan: MovePlan) -> None:
    for topic in plan.topics:
        partitions, records = counted(topic.partitions, "partition"), counted(topic.records, "record")
        write_line(f"topic {topic.name}: {partitions}, {records}, {size_text(topic.bytes)}")
    for group in plan.groups:
        write_line(f"{group.type} group {group.id}: {counted(group.rows, 'row')}")
