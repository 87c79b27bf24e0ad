"""`logbroker queue resume|skip|drop|replace`: decisions of an operator about stalled lanes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import BytesType, key_of, raw_bytes
from logbroker.cli.common.clients import CommandQueueAdmin
from logbroker.cli.common.lines import confirm, counted, tell
from logbroker.cli.common.options import broker_option, json_option, yes_option
from logbroker.cli.common.stops import stops_are_interrupts, told_when_stopped
from logbroker.cli.queue.text import key_document, key_text
from logbroker.client.admin.queue_admin import Lane
from logbroker.client.admin.queue_descriptions import Decision
from logbroker.config import MAX_BATCH_BYTES, MAX_INT32, MAX_INT64
from logbroker.errors import InvalidRequestError, LogbrokerError, quoted
from logbroker.texts import size_text, whole_number

F = TypeVar("F", bound=Callable[..., Any])

MAX_SHOWN: Final = 20
"""Maximum number of lanes that are named one by one; further lanes are only counted."""

_ALL_LANES: Final = "all lanes that are blocked, parked or refused by the dead-letter topic"

all_option: Final = click.option(
    "--all",
    "of_all",
    is_flag=True,
    help=f"Apply to {_ALL_LANES}.",
)
base64_option: Final = click.option(
    "--base64", "in_base64", is_flag=True, help="KEY is base64, for keys that are not text."
)


class _RecordIdType(click.ParamType[tuple[int, int]]):
    """PARTITION:OFFSET."""

    name = "record id"

    def convert(
        self, value: str | tuple[int, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[int, int]:
        if not isinstance(value, str):
            return value
        partition, _, offset = value.partition(":")
        numbers = whole_number(partition), whole_number(offset)
        if (
            numbers[0] is None
            or numbers[1] is None
            or not 0 <= numbers[0] <= MAX_INT32
            or not 0 <= numbers[1] <= MAX_INT64
        ):
            self.fail(f"{quoted(value)} is not PARTITION:OFFSET, such as 0:1200", param, ctx)
        return numbers[0], numbers[1]


def _lane_options(function: F) -> F:
    for option in (
        base64_option,
        click.option(
            "--record",
            "record_ids",
            type=_RecordIdType(),
            multiple=True,
            metavar="PARTITION:OFFSET",
            help="Apply to the lane of this record, if the record has no ordering key. Repeatable.",
        ),
        click.argument("keys", metavar="[KEY]...", nargs=-1, type=BytesType()),
        click.argument("group", metavar="GROUP"),
    ):
        function = option(function)
    return function


def _lanes(keys: Sequence[str], record_ids: Sequence[tuple[int, int]], in_base64: bool) -> list[Lane]:
    return [*(key_of(key, in_base64=in_base64) for key in keys), *record_ids]


@click.command()
@_lane_options
@all_option
@broker_option
@json_option
def resume(
    group: str,
    keys: tuple[str, ...],
    record_ids: tuple[tuple[int, int], ...],
    in_base64: bool,
    of_all: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Let lanes of GROUP go on, with new attempts.

    The lanes are stalled: blocked, parked, waiting, or refused by the dead-letter topic. The attempts of their first
    record begin anew.

    \b
    Examples:
      logbroker queue resume billing customer-7 customer-8
      logbroker queue resume billing --record 0:1200
      logbroker queue resume billing --all
    """
    lanes = _lanes(keys, record_ids, in_base64)
    _check_named(lanes, of_all)
    with CommandQueueAdmin(broker) as admin:
        if of_all:
            _decide_all(admin, group, "resume", as_json=as_json)
        else:
            _decide(lanes, lambda lane: admin.resume_lane(group, lane), "resumed", as_json=as_json)


@click.command()
@_lane_options
@all_option
@yes_option
@broker_option
@json_option
def skip(
    group: str,
    keys: tuple[str, ...],
    record_ids: tuple[tuple[int, int], ...],
    in_base64: bool,
    of_all: bool,
    yes: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Mark the first record of lanes of GROUP as done; the lanes go on.

    With --all, the command asks for confirmation.

    \b
    Examples:
      logbroker queue skip billing customer-7
      logbroker queue skip billing --all
    """
    lanes = _lanes(keys, record_ids, in_base64)
    _check_named(lanes, of_all)
    with CommandQueueAdmin(broker) as admin:
        if of_all and not yes:
            admin.describe_queue(group)  # A group that does not exist is reported before the question.
            confirm(f"Mark the first record of {_ALL_LANES} as done for queue group {group}?")
        if of_all:
            _decide_all(admin, group, "skip", as_json=as_json)
        else:
            _decide(lanes, lambda lane: admin.skip_head(group, lane), "skipped the first record of", as_json=as_json)


@click.command()
@_lane_options
@all_option
@yes_option
@broker_option
@json_option
def drop(
    group: str,
    keys: tuple[str, ...],
    record_ids: tuple[tuple[int, int], ...],
    in_base64: bool,
    of_all: bool,
    yes: bool,
    broker: str,
    as_json: bool,
) -> None:
    """Mark all waiting records of lanes of GROUP as done.

    Records that arrive later are delivered as usual.

    \b
    Examples:
      logbroker queue drop billing customer-7 --yes
      logbroker queue drop billing --all
    """
    lanes = _lanes(keys, record_ids, in_base64)
    _check_named(lanes, of_all)
    with CommandQueueAdmin(broker) as admin:
        if not yes:
            admin.describe_queue(group)  # A group that does not exist is reported before the question.
            named = ", ".join(map(_lane_text, lanes[:MAX_SHOWN]))
            more = f" and {len(lanes) - MAX_SHOWN:,} more lanes" if len(lanes) > MAX_SHOWN else ""
            which = _ALL_LANES if of_all else f"{named}{more}"
            confirm(f"Mark all records of {which} as done for queue group {group}?")
        if of_all:
            _decide_all(admin, group, "drop", as_json=as_json)
        else:
            _decide(lanes, lambda lane: admin.drop_lane(group, lane), "dropped", as_json=as_json)


@click.command()
@click.argument("group", metavar="GROUP")
@click.argument("key", metavar="[KEY]", required=False, type=BytesType())
@click.option(
    "--record",
    "record_id",
    type=_RecordIdType(),
    metavar="PARTITION:OFFSET",
    help="Record without an ordering key, instead of KEY.",
)
@base64_option
@click.option("--value", type=BytesType(), metavar="TEXT", help="Value of the new record.  [default: standard input]")
@click.option(
    "--header",
    "headers",
    metavar="NAME=VALUE",
    multiple=True,
    help="Header of the new record. Repeatable.  [default: the headers of the old record]",
)
@broker_option
@json_option
def replace(
    group: str,
    key: str | None,
    record_id: tuple[int, int] | None,
    in_base64: bool,
    value: str | None,
    headers: tuple[str, ...],
    broker: str,
    as_json: bool,
) -> None:
    """Replace the first record of a lane of GROUP; the lane goes on.

    This group delivers the new record in place of the old one, until it is done. The topic keeps the old record, which
    comes again after a rewind. The new record has the key and, unless --header is given, the headers of the old one.
    With --header, it has only the headers that are given and the header that holds the ordering key, if the group has
    one.

    `logbroker queue explain` shows the record that workers get, before and after. Standard input is taken byte for
    byte, with the line feed at its end.

    \b
    Examples:
      logbroker queue explain billing customer-7 --json | jq -ej .record.value > mended.json
      logbroker queue replace billing customer-7 --value '{"amount": 12}'
      logbroker queue replace billing customer-7 < mended.json
      logbroker queue replace billing customer-7 --header tenant=acme --header trace=17 < mended.json
    """
    if (key is None) == (record_id is None):
        raise click.UsageError("give either KEY or --record")
    lane: Lane = key_of(key, in_base64=in_base64) if key is not None else record_id or (0, 0)
    pairs = []
    for header in headers:
        name, separator, text = header.partition("=")
        if not separator:
            raise click.UsageError(f"{header!r} is not NAME=VALUE")
        pairs.append((name, text.encode()))
    content = sys.stdin.buffer.read(MAX_BATCH_BYTES + 1) if value is None else raw_bytes(value)
    if not content and value is None:
        raise click.UsageError(
            "standard input is empty: give the value there or in --value (--value '' for an empty one)"
        )
    if len(content) > MAX_BATCH_BYTES:
        raise InvalidRequestError(f"the value has more than {size_text(MAX_BATCH_BYTES)}")
    with CommandQueueAdmin(broker) as admin:
        _decide(
            [lane],
            lambda lane: admin.replace_head(group, lane, content, headers=pairs),
            "replaced the first record of",
            as_json=as_json,
        )


def _check_named(lanes: Sequence[Lane], of_all: bool) -> None:
    if of_all == bool(lanes):
        raise click.UsageError("give KEY, --record or --all")


def _decide_all(admin: CommandQueueAdmin, group: str, decision: Decision, *, as_json: bool) -> None:
    """Decide about all held lanes in one request, and report their number."""
    decided = admin.decide_all(group, decision)
    if as_json:
        document = {"lanes": decided.lanes, "records_done": decided.records_done, "refused": decided.refused}
        terminal.write_json(document if decided.why_refused is None else {**document, "why": str(decided.why_refused)})
    elif not decided.lanes and not decided.refused:
        tell("no lane waits for an operator")
    else:
        done = {"resume": "resumed", "skip": "skipped the first record of", "drop": "dropped"}[decision]
        records = f": {counted(decided.records_done, 'record')} done"
        lanes = f"{counted(decided.lanes, 'lane')}"
        tell(f"{done} {lanes}{'' if decision == 'resume' else records}")
    if decided.why_refused is not None:
        lanes = f"{counted(decided.refused, 'lane')}"
        raise type(decided.why_refused)(f"{lanes} could not be moved: {decided.why_refused}")


def _decide(lanes: Sequence[Lane], decide: Callable[[Lane], int | None], done: str, *, as_json: bool) -> None:
    """Decide about lanes one by one. If some lanes cannot be moved, the command fails after it has moved the others."""
    failures: list[LogbrokerError] = []
    outcomes: list[dict[str, Any]] = []
    begun = 0

    def how_far() -> str:
        moved = len(outcomes) - len(failures)
        unsure = f"; {_lane_text(lanes[begun - 1])} may have been, too" if begun > len(outcomes) else ""
        return f"{done} {counted(moved, 'lane')}{unsure}"

    with stops_are_interrupts(), told_when_stopped(how_far):
        for lane in lanes:
            document = key_document(lane) if isinstance(lane, bytes) else {"partition": lane[0], "offset": lane[1]}
            begun += 1
            try:
                records = decide(lane)
            except LogbrokerError as error:
                failures.append(type(error)(f"{_lane_text(lane)}: {error}"))
                outcomes.append({**document, "error": str(error)})
                continue
            outcomes.append(document if records is None else {**document, "records_done": records})
            if not as_json and len(outcomes) - len(failures) <= MAX_SHOWN:
                count = "" if records is None else f": {counted(records, 'record')} done"
                tell(f"{done} {_lane_text(lane)}{count}")
    if as_json:
        terminal.write_json(outcomes)
    elif len(outcomes) - len(failures) > MAX_SHOWN:
        tell(f"{done} {counted(len(outcomes) - len(failures) - MAX_SHOWN, 'more lane')}")
    if failures:
        more = f" (and {len(failures) - 1:,} more failed)" if len(failures) > 1 else ""
        raise type(failures[0])(f"{failures[0]}{more}")


def _lane_text(lane: Lane) -> str:
    return f"lane {key_text(lane)}" if isinstance(lane, bytes) else f"the lane of record {lane[0]}:{lane[1]}"
