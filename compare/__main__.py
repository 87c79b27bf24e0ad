"""`make compare`: logbroker beside what people would pick instead. It runs from a checkout."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from compare import report
from compare.all_peers import CLUSTERS, PEERS
from compare.peers.peer import WORKLOADS, Peer
from compare.run import Comparison, compare, steps_of
from compare.workloads import Plan
from logbroker.cli.common import terminal
from logbroker.cli.common.arguments import PathType, Real, Whole
from logbroker.cli.common.lines import write_line
from logbroker.cli.common.options import json_option
from logbroker.cli.main import main
from logbroker.errors import LogbrokerError


def _choices(known: Sequence[str], but: Sequence[str] = ()) -> Any:
    """A list of names with commas between; without one, all that are known, but for some."""

    def parse(_context: click.Context, _parameter: click.Parameter, text: str | None) -> list[str]:
        names = (
            [name for name in known if name not in but] if text is None else [name.strip() for name in text.split(",")]
        )
        for name in names:
            if name not in known:
                raise click.BadParameter(f"{name!r} is none of {', '.join(known)}")
        return names

    return parse


@click.command("compare")
@click.option(
    "--peers",
    "names",
    metavar="NAME,...",
    callback=_choices(list(PEERS), CLUSTERS),
    help=f"Who takes part: {', '.join(PEERS)}.  [default: all that are installed, but for {', '.join(CLUSTERS)}]",
)
@click.option(
    "--workloads",
    metavar="NAME,...",
    callback=_choices(list(WORKLOADS)),
    help=f"What is measured: {', '.join(WORKLOADS)}.  [default: all]",
)
@click.option("--rounds", type=Whole(1), default=3, show_default=True, help="The median counts.")
@click.option(
    "--records", type=Whole(100), default=1_000_000, show_default=True, help="Of each publish and each queue."
)
@click.option(
    "--seconds",
    type=Real(0.1),
    default=5.0,
    show_default=True,
    help="Of each publish at most; a slow peer sends fewer records then.",
)
@click.option(
    "--restart-gb",
    type=Real(0.001),
    default=5.0,
    show_default=True,
    help="What is written before the SIGKILL; so much disk, and memory with Redis, is needed.",
)
@click.option(
    "--directory",
    type=PathType(exists=True, file_okay=False),
    help="Where the data go; the disk under it is measured.  [default: the temporary directory]",
)
@click.option("--markdown", "as_markdown", is_flag=True, help="Write Markdown, as in docs/COMPARISON.md.")
@json_option
def compare_command(
    names: list[str],
    workloads: list[str],
    rounds: int,
    records: int,
    seconds: float,
    restart_gb: float,
    directory: Path | None,
    as_markdown: bool,
    as_json: bool,
) -> None:
    """Run the same workload on logbroker and on its peers.

    Each peer's server is started on a free port of 127.0.0.1 with data of its own, one at a time, in turn; its client
    library runs in a process of its own. The table says for each side how durable an acknowledgement was, and how many
    times better or worse logbroker is at that durability. What is not installed is left out, and said; `make peers`
    installs Kafka and all client libraries.

    \b
    Examples:
      make compare
      make compare ARGS="--peers logbroker,redis --workloads publish,replay --records 50000 --rounds 1"
      make compare ARGS="--workloads restart --restart-gb 1"
      make compare ARGS="--peers gateway-1,gateway-2,kafka-cluster --workloads publish,replay,work,ordered"
      make --silent compare ARGS=--markdown > comparison.md
    """
    # Whoever ends this command ends the servers that it has started: as with Ctrl-C, every `finally` runs.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    peers = [PEERS[name] for name in names]
    plan = Plan(
        workloads=workloads,
        rounds=rounds,
        records=records,
        seconds=seconds,
        restart_bytes=int(restart_gb * 1e9),
        directory=directory,
    )
    with terminal.progress("comparing", steps_of(peers, plan), "servers") as count:
        done = 0

        def on_step(_what: str) -> None:
            nonlocal done
            done += 1
            count(done)

        found = compare(peers, plan, on_step)
    if as_json:
        terminal.write_json(_document(found))
    elif as_markdown:
        for line in report.markdown(found, peers).splitlines():
            write_line(line)
    else:
        _show(found, peers)
    if not found.figures:
        raise LogbrokerError("nothing could be compared: see what was left out")


def _document(found: Comparison) -> dict[str, Any]:
    lines = [{**msgspec.to_builtins(line), "median": line.median} for line in report.lines_of(found.figures)]
    return {
        "machine": found.machine,
        "versions": dict(found.versions),
        "left_out": list(found.left_out),
        "lines": lines,
    }


def _show(found: Comparison, peers: Sequence[Peer]) -> None:
    titles = {peer.name: peer.title for peer in peers}
    table = terminal.table(*report.COLUMNS, numbers=("median", "range", "logbroker is"))
    for line in report.lines_of(found.figures):
        table.add_row(*line.cells(titles[line.peer]))
    terminal.show(table)
    for peer in peers:
        if peer.name in found.versions:
            write_line(f"{peer.title} {found.versions[peer.name]}: {peer.client_settings}")
            for durability, promise in peer.promises.items():
                write_line(f"  {durability.value}: {promise}")
            for workload, note in peer.notes.items():
                write_line(f"  {workload}: {note}")
    for each in found.left_out:
        write_line(f"left out: {each}")
    write_line(f"Measured on: {found.machine}")


if __name__ == "__main__":
    main(compare_command, "compare")
