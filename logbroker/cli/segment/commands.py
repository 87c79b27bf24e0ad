"""`logbroker segment`: inspect and repair the files of a log. Needs no broker."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import OFFSET, BytesType, PathType, Whole, key_of
from logbroker.cli.common.lines import confirm, counted, tell, write_json_line, write_line
from logbroker.cli.common.options import json_option, number_option, yes_option
from logbroker.cli.segment import output
from logbroker.config import MAX_INT64
from logbroker.errors import CorruptLogError, DataDirError, InvalidRequestError, LogbrokerError, quoted, quoted_key
from logbroker.texts import whole_number
from logbroker.tools.segments import find as finding
from logbroker.tools.segments import mend, partition_repair
from logbroker.tools.segments.findings import PartitionReport, Severity
from logbroker.tools.segments.listing import list_segments
from logbroker.tools.segments.locate import (
    LOG_SUFFIX,
    Located,
    PartitionFiles,
    check_not_special,
    file_bytes,
    has_store,
    locate,
)
from logbroker.tools.segments.metadata import is_live
from logbroker.tools.segments.reading import UNREADABLE, Progress, SegmentBatch, SegmentReading, records_of
from logbroker.tools.segments.stats import Stats
from logbroker.tools.segments.verify import verify as verify_partitions

_MIB = 1 << 20

paths_argument = click.argument("paths", metavar="PATH...", nargs=-1, required=True, type=PathType())
file_argument = click.argument("file", type=PathType())


@click.group()
def segment() -> None:
    """Inspect and repair the files of a log, without a broker.

    PATH is a .log file, a partition's directory or a whole data directory. Only rebuild-index and repair change files.
    The other commands also work beside a running broker, and on directories that Kafka wrote.

    \b
    Examples:
      logbroker segment verify ./data
      logbroker segment list ./data/orders-0
      logbroker segment dump ./data/orders-0/00000000000000000000.log --records --json
      logbroker segment find ./data --key customer-7
      logbroker segment repair ./data/orders-0
    """


@segment.command(name="list")
@paths_argument
@json_option
def list_command(paths: tuple[Path, ...], as_json: bool) -> None:
    """List segments with their offsets, records, sizes and times.

    The command reads only the headers of batches; `logbroker segment verify` also reads the records.

    \b
    Examples:
      logbroker segment list ./data
      logbroker segment list ./data/orders-0 --json | jq '.[].records'
    """
    located = locate(paths)
    with _progress("listing", located) as progress:
        rows = [facts for _, facts in list_segments(located, progress)]
    if as_json:
        terminal.write_json(rows)
    else:
        output.show_segments(rows)


@segment.command()
@file_argument
@click.option("--records", "with_records", is_flag=True, help="Write the decoded records of each batch, too.")
@click.option("--from", "first_offset", type=OFFSET, default=0, metavar="OFFSET", help="First offset to write.")
@json_option
def dump(file: Path, with_records: bool, first_offset: int, as_json: bool) -> None:
    """Write the batches of a log file, one on each line.

    FILE is a .log file, or a side file with the bytes that a repair or recovery cut off. Keys and values are text, or
    base64 if they are not UTF-8. With --json, `kind` says whether a line is a batch or a record. Damaged bytes are
    skipped and reported at the end.

    \b
    Examples:
      logbroker segment dump 00000000000000000000.log
      logbroker segment dump 00000000000000000000.log --records --from 4711
      logbroker segment dump 00000000000000000000.log --records --json | jq -r 'select(.kind == "record") | .key'
    """
    located = _one_file(file)
    (partition,) = located.partitions
    reading = SegmentReading(partition.segments[0], lambda _bytes: None, live=is_live(partition))
    undecodable = 0
    for batch in reading.batches():
        if batch.header.next_offset <= first_offset:
            continue
        if as_json:
            write_json_line(output.batch_document(batch.position, batch.header))
        else:
            output.print_line(output.batch_line(batch.position, batch.header))
        if with_records:
            undecodable += not _dump_records(batch, first_offset, as_json=as_json)
    _raise_for(reading, undecodable)


@segment.command()
@paths_argument
@click.option(
    "--gaps/--no-gaps",
    "gaps_allowed",
    default=None,
    help="Allow missing offsets, or report them as errors.  [default: allow them only if another program wrote the"
    " log]",
)
@json_option
def verify(paths: tuple[Path, ...], gaps_allowed: bool | None, as_json: bool) -> None:
    """Check every byte of a log for damage.

    The command checks batches, the order of offsets, indexes, partition files and recovery points. If something is
    wrong, it names the file and the bytes, and exits with 1. A torn tail is an incomplete end of the log after the
    recovery point, as a crash leaves it; the broker cuts it off at its next start. Any other damage is an error.

    \b
    Examples:
      logbroker segment verify ./data
      logbroker segment verify ./data/orders-0 --json | jq '.partitions[].findings'
      logbroker segment verify /var/lib/kafka/data --gaps
    """
    started = time.monotonic()
    located = locate(paths)
    with _progress("verifying", located) as progress:
        reports = list(verify_partitions(located, progress, gaps_allowed=gaps_allowed))
    seconds = time.monotonic() - started
    if as_json:
        terminal.write_json({"sound": all(report.sound for report in reports), "partitions": reports})
    else:
        output.show_findings(reports)
        write_line(output.checked_line(reports, seconds))
    _raise_unsound(reports)


@segment.command()
@paths_argument
@number_option("--top", kind=Whole(0, 1000), default=10, help="Number of most frequent keys to show.")
@json_option
def stats(paths: tuple[Path, ...], top: int, as_json: bool) -> None:
    """Show the most frequent keys, batch sizes and compression.

    The numbers are totals over all segments under the PATHs.

    \b
    Examples:
      logbroker segment stats ./data/orders-0 ./data/orders-1
      logbroker segment stats ./data --top 50 --json
    """
    located = locate(paths)
    counted = Stats()
    with _progress("counting", located) as progress:
        counted.add(located, progress)
    if not as_json:
        output.show_stats(counted, top)
        return
    document = counted.document(top)
    document["top_keys"] = [output.key_document(key, count) for key, count in counted.keys.top(top)]
    terminal.write_json(document)


class _TimeType(click.ParamType[int]):
    """Milliseconds since 1970, or ISO 8601; a time without a zone is local."""

    name = "time"

    def convert(self, value: str | int, param: click.Parameter | None, ctx: click.Context | None) -> int:
        number = value if isinstance(value, int) else whole_number(value)
        if number is not None and (0 <= number <= MAX_INT64 or isinstance(value, int)):
            return number
        try:
            return int(datetime.datetime.fromisoformat(str(value)).astimezone().timestamp() * 1000)
        except (ValueError, OverflowError):
            self.fail(f"{quoted(value)} is neither milliseconds nor a time such as 2026-01-31T12:00:00Z", param, ctx)


@segment.command()
@paths_argument
@click.option("--key", type=BytesType(), metavar="KEY", help="Find all records with this key.")
@click.option("--base64", "key_is_base64", is_flag=True, help="KEY is base64, for keys that are not text.")
@click.option(
    "--time",
    "timestamp_ms",
    type=_TimeType(),
    metavar="TIME",
    help="Find the first record of each partition at or after TIME.",
)
@json_option
def find(
    paths: tuple[Path, ...], key: str | None, key_is_base64: bool, timestamp_ms: int | None, as_json: bool
) -> None:
    """Find records by key or time.

    The command shows the offset of each record, and the file and position of its batch; with --json, each record is a
    line. TIME is ISO 8601, in local time unless it names a zone, or milliseconds since 1970. Damaged bytes are skipped
    and reported at the end. The exit code is 1 if no record is found, or if damaged bytes may have held a record.

    \b
    Examples:
      logbroker segment find ./data --key customer-7
      logbroker segment find ./data/orders-0 --time 2026-01-31T12:00:00Z
    """
    if (key is None) == (timestamp_ms is None):
        raise click.UsageError("give --key or --time")
    located = locate(paths)
    wanted = key_of(key, in_base64=key_is_base64) if key is not None else b""
    none = True
    damaged: list[SegmentReading] = []
    with _progress("searching", located) as progress:
        if timestamp_ms is not None:
            results = finding.find_time(located, timestamp_ms, progress, damaged)
        else:
            results = finding.find_key(located, wanted, progress, damaged)
        for found in results:
            none = False
            if as_json:
                write_json_line(found)
            else:
                output.print_line(output.found_line(found))
    for reading in damaged:
        _raise_for(reading)
    if none:
        what = f"with the key {quoted_key(wanted)}" if key is not None else "of that time or later"
        raise LogbrokerError(f"there is no record {what}")


@segment.command(name="rebuild-index")
@paths_argument
def rebuild_index(paths: tuple[Path, ...]) -> None:
    """Rebuild the offset and time indexes from the log.

    No broker may run on the data directory.

    \b
    Examples:
      logbroker segment rebuild-index ./data/orders-0
    """
    located = locate(paths)
    with _progress("rebuilding", located) as progress:
        for partition in located.partitions:
            with mend.exclusive(partition):
                for item in partition.listed():
                    offsets, times = mend.rebuild_index(item, progress)
                    write_line(
                        f"{output.short(item.path)}: {counted(offsets, 'offset entry', 'offset entries')}, "
                        f"{counted(times, 'time entry', 'time entries')}"
                    )


@segment.command()
@click.argument("path", type=PathType())
@click.option("--cut", is_flag=True, help="End the log of a directory at its first fault.")
@click.option(
    "--accept-gaps", is_flag=True, help="Keep all sound batches of a directory; readers skip the missing offsets."
)
@click.option(
    "--take-back",
    is_flag=True,
    help="Also put sound files back into gaps that an earlier repair accepted if nothing is known of the lost files.",
)
@click.option("--dry-run", is_flag=True, help="Show what would be done, and change nothing.")
@yes_option
def repair(path: Path, cut: bool, accept_gaps: bool, take_back: bool, dry_run: bool, yes: bool) -> None:
    """Repair a partition that cannot be opened or read to its end.

    No broker may run on the data directory. If there is a backup, restore it instead.

    If PATH is a partition's directory, the command shows what is wrong there: segments that are missing, damaged or not
    part of the log, and damaged small files. It changes nothing unless you choose: --cut ends the log at its first
    fault; --accept-gaps keeps all sound batches at their offsets, and readers skip the missing offsets. If a lost file
    is found and put back after --accept-gaps, another repair takes it back.

    If PATH is a log file, the command cuts it at its first damaged batch.

    The bytes that are cut off are kept in side files, FILE.cut-POSITION, which `logbroker segment dump` reads. Clients
    that have read beyond the new end get an error. Committed offsets beyond the new end are lowered at the next start.

    \b
    Examples:
      logbroker segment repair ./data/orders-0
      logbroker segment repair ./data/orders-0 --accept-gaps --dry-run
      logbroker segment repair ./data/orders-0 --cut
      logbroker segment repair ./data/orders-0/00000000000000000000.log --dry-run
    """
    if cut and accept_gaps:
        raise click.UsageError("give --cut or --accept-gaps, not both")
    check_not_special(path)
    if not path.is_dir() and (path.suffix == LOG_SUFFIX or os.path.lexists(path)):
        if cut or accept_gaps or take_back:
            raise click.UsageError(
                f"{path} is a file, and a file is always cut: leave the option out, or name the directory"
            )
        _repair_file(path, dry_run=dry_run, yes=yes)
    else:
        choice = accept_gaps if cut or accept_gaps else None
        _repair_directory(path, choice, take_back=take_back, dry_run=dry_run, yes=yes)


def _repair_directory(path: Path, accept_gaps: bool | None, *, take_back: bool, dry_run: bool, yes: bool) -> None:
    partition = _one_partition(path)
    located = Located(partitions=[partition], data_dirs=[])
    with ExitStack() as stack:
        if accept_gaps is None or dry_run:
            if is_live(partition):
                raise DataDirError(f"a broker uses {partition.data_dir}; stop it first")
        else:
            stack.enter_context(mend.exclusive(partition))
        with _progress("checking", located) as progress:
            found = partition_repair.survey(partition, progress, take_back=take_back)
        for line in output.problem_lines(found):
            output.print_line(line)
        if not found.problems:
            write_line(f"{path}: nothing to repair (not checked: indexes, which `segment rebuild-index` makes anew)")
            return
        if accept_gaps is None:
            for choice, text in ((False, "--cut"), (True, "--accept-gaps")):
                plan = partition_repair.plan_repair(found, accept_gaps=choice)
                if plan is not None:
                    output.print_line(f"{text}: {output.outcome_line(plan)}")
            if found.returned:
                write_line("to take the found files back, use --accept-gaps: it cuts nothing off")
            raise CorruptLogError(
                f"{counted(len(found.problems), 'problem')} in {path}; restore a backup, or repair it with --cut"
                " or --accept-gaps (--dry-run shows what each of them does)"
            )
        plan = partition_repair.plan_repair(found, accept_gaps=accept_gaps)
        assert plan is not None
        for line in output.partition_plan_lines(plan):
            output.print_line(line)
        if dry_run:
            return
        if not yes:
            confirm("Do that?")
        partition_repair.repair(plan)
    tell(f"{path} is repaired: {output.outcome_line(plan)}")
    if found.returned:
        tell(
            "groups that had passed these offsets stay where they are: `logbroker group reset-offsets` and"
            " `logbroker queue rewind` lead them back"
        )


def _one_partition(path: Path) -> PartitionFiles:
    """Return the partition of a directory. All of its files, or the directory itself, may be missing."""
    directory = Path(os.path.abspath(path))
    if directory.is_dir():
        if has_store(directory):
            raise click.UsageError(f"{path} is a data directory; name the directory of one partition")
        with suppress(InvalidRequestError):  # All of its files may be missing.
            found = locate([directory]).partitions
            if len(found) != 1 or found[0].directory != directory:
                raise click.UsageError(f"{path} holds several partitions; name the directory of one")
            return found[0]
    partition = PartitionFiles(directory=directory, segments=(), whole=True)
    if partition.topic_partition is None or partition.data_dir is None:
        os.stat(path)
        raise InvalidRequestError(f"{path} is neither a log file nor a partition's directory; name one of these")
    return partition


def _repair_file(file: Path, *, dry_run: bool, yes: bool) -> None:
    located = _one_file(file)
    (partition,) = located.partitions
    if dry_run:
        if is_live(partition):
            raise DataDirError(f"a broker uses {partition.data_dir}; stop it first")
        with _progress("checking", located) as progress:
            plan = mend.plan_repair(partition, progress)
        _show_plan(plan, file)
        return
    with mend.exclusive(partition):
        with _progress("checking", located) as progress:
            plan = mend.plan_repair(partition, progress)
        _show_plan(plan, file)
        if plan is None:
            return
        if not yes:
            confirm("Do that?")
        mend.repair(plan)
    tell(f"{output.short(plan.path)} now ends at byte {plan.position}, offset {plan.offset}")


def _show_plan(plan: mend.RepairPlan | None, file: Path) -> None:
    for line in [f"{file}: nothing to repair"] if plan is None else output.plan_lines(plan):
        write_line(line)


def _one_file(file: Path) -> Located:
    if file.is_dir():
        raise click.UsageError(f"{file} is a directory; name one of its .log files")
    return locate([file])


@contextmanager
def _progress(description: str, located: Located) -> Iterator[Progress]:
    total = sum(sum(file_bytes(partition.segments).values()) for partition in located.partitions)
    done = 0
    with terminal.progress(description, -(-total // _MIB), "MiB") as count:

        def advance(read_bytes: int) -> None:
            nonlocal done
            done += read_bytes
            count(-(-done // _MIB))

        yield advance


def _dump_records(batch: SegmentBatch, first_offset: int, *, as_json: bool) -> bool:
    """Write the records of a batch. Return whether they could be decoded."""
    write: Callable[[Any], None] = write_json_line if as_json else output.print_line
    try:
        for record in records_of(batch.plain()):
            if record.offset >= first_offset:
                write(
                    output.record_document(record)
                    if as_json
                    else output.record_line(record, control=batch.header.is_control)
                )
    except UNREADABLE as error:
        write({"kind": "error", "message": error.message} if as_json else f"  cannot be decoded: {error.message}")
        return False
    return True


def _raise_for(reading: SegmentReading, undecodable: int = 0) -> None:
    """Raise CorruptLogError if there is damage."""
    if faults := reading.faults:
        where = ", ".join(f"{fault.position}-{max(fault.position, fault.end - 1)}" for fault in faults[:5])
        raise CorruptLogError(f"{reading.segment.path}: damaged at bytes {where}: {faults[0].reason}")
    if undecodable:
        raise CorruptLogError(f"{reading.segment.path}: {counted(undecodable, 'batch', 'batches')} cannot be decoded")


def _raise_unsound(reports: list[PartitionReport]) -> None:
    found = [item for report in reports for item in report.findings]
    errors = sum(item.severity is Severity.ERROR for item in found)
    torn = sum(item.severity is Severity.TORN_TAIL for item in found)
    if errors or torn:
        counts = [counted(count, noun) for count, noun in ((errors, "error"), (torn, "torn tail")) if count]
        first = next(item for item in found if item.severity is not Severity.NOTE)
        at = "" if first.position is None else f" at byte {first.position}"
        raise CorruptLogError(f"{' and '.join(counts)}; the first: {first.path}{at}: {first.message}")
