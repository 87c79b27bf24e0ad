"""`logbroker queue split|unsplit`: split the lane of a hot key into sub-lanes, and join them again."""

from __future__ import annotations

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import BytesType, Whole, key_of
from logbroker.cli.common.clients import CommandQueueAdmin
from logbroker.cli.common.lines import tell
from logbroker.cli.common.options import broker_option, json_option, number_option
from logbroker.cli.queue.decisions import base64_option
from logbroker.cli.queue.text import key_document, key_text
from logbroker.queues.model.second_key import MAX_SUB_LANES, MIN_SUB_LANES


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("key", metavar="KEY", type=BytesType())
@click.option(
    "--by",
    required=True,
    metavar="WHERE",
    help="Where the second key of a record is: header:NAME, or key-suffix:SEPARATOR for the end of the record's key."
    " none: the records of KEY have none, and are delivered in any order.",
)
@number_option("--into", kind=Whole(MIN_SUB_LANES, MAX_SUB_LANES), default=16, help="Number of sub-lanes.")
@base64_option
@broker_option
@json_option
def split(group: str, key: str, by: str, into: int, in_base64: bool, broker: str, as_json: bool) -> None:
    """Split the lane of KEY, so that many workers can share a hot key.

    The waiting and later records of KEY are put into sub-lanes by a second key. Records with the same second key stay
    in order. The sub-lanes begin once the lane's deliveries in flight are settled. Attempts and held records stay as
    they are. A failing record then holds up its own sub-lane only. Sub-lanes have names such as general#3, which all
    commands accept as KEY. A split lasts until `logbroker queue unsplit`.

    \b
    Examples:
      logbroker queue split chat general --by header:thread
      logbroker queue split clicks page-1 --by none --into 32
    """
    ordering_key = key_of(key, in_base64=in_base64)
    with CommandQueueAdmin(broker) as admin:
        admin.split_lane(group, ordering_key, by=by, into=into)
    if as_json:
        terminal.write_json({**key_document(ordering_key), "by": by, "into": into})
    else:
        tell(f"split lane {key_text(ordering_key)} by {by} into {into:,} sub-lanes")


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("key", metavar="KEY", type=BytesType())
@base64_option
@broker_option
@json_option
def unsplit(group: str, key: str, in_base64: bool, broker: str, as_json: bool) -> None:
    """Undo the split of the lane of KEY.

    The records in the sub-lanes are delivered first. New records of KEY wait until the sub-lanes are empty. Then they
    are delivered in one lane, in order.

    \b
    Examples:
      logbroker queue unsplit chat general
    """
    ordering_key = key_of(key, in_base64=in_base64)
    with CommandQueueAdmin(broker) as admin:
        admin.join_lane(group, ordering_key)
    if as_json:
        terminal.write_json(key_document(ordering_key))
    else:
        tell(f"lane {key_text(ordering_key)} is one lane again when its sub-lanes are done")
