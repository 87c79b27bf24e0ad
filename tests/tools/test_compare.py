"""The comparison with other brokers: its load, its bookkeeping, its report, and small real runs."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec
import pytest

from compare import kafka_tools, machine, report
from compare.all_peers import PEERS
from compare.child import Latencies
from compare.load import KEYS, Kind, Load, Stopwatch, Worked, WorkLog, key_of, pace, shard_of
from compare.peers import kafka_server
from compare.peers.logbroker import LogbrokerClient
from compare.peers.peer import WORKLOADS
from compare.run import Comparison, compare
from compare.tally import Tally
from compare.workloads import Figure, Plan, check_worked
from logbroker.errors import BrokerUnavailableError, LogbrokerError
from logbroker.types import Durability

ROOT = Path(__file__).resolve().parents[2]
WRITTEN, SYNCED = Durability.WRITTEN, Durability.SYNCED


def test_a_load_has_so_many_values_of_one_size() -> None:
    chunks = list(Load("t", 2500, 100).chunks())
    assert [len(chunk) for chunk in chunks] == [1000, 1000, 500]
    assert {len(value) for chunk in chunks for value in chunk} == {100}


def test_large_values_come_in_small_chunks() -> None:
    assert [len(chunk) for chunk in Load("t", 20, 64 * 1024).chunks()] == [8, 8, 4]


def test_a_load_ends_when_its_time_is_over() -> None:
    chunks = Load("t", 10**9, 100, max_seconds=0.05).chunks()
    assert 0 < sum(map(len, chunks)) < 10**9


def test_keyed_values_are_numbered_and_keep_their_key_and_shard() -> None:
    values = [value for chunk in Load("t", 25_000, 100, shards=8, keyed=True).chunks() for value in chunk]
    assert len(set(values)) == 25_000
    shards_of_key: dict[bytes, set[int]] = {}
    for value in values:
        shards_of_key.setdefault(key_of(value), set()).add(shard_of(value, 8))
    assert len(shards_of_key) == 10_000
    assert all(len(shards) == 1 for shards in shards_of_key.values())
    assert set.union(*shards_of_key.values()) == set(range(8))


def test_a_worker_notices_records_of_a_key_that_come_out_of_order() -> None:
    values = [value for chunk in Load("t", 20_001, 100, keyed=True).chunks() for value in chunk]
    seen = WorkLog(bytearray(20_001))
    for number in (0, 1, 10_001, 10_000, 20_000):
        seen.see(values[number])
    assert (seen.result().disordered, seen.result().repeated) == (0, 0)
    seen.see(values[10_000])
    seen.see(values[10_002])  # before 2, which has the same key
    found = seen.result()
    assert (found.records, found.disordered, found.repeated) == (7, 1, 1)
    assert found.first is not None
    assert WorkLog(bytearray()).result().first is None


def test_workers_notice_what_another_one_was_given_too_late_or_as_well(tmp_path: Path) -> None:
    path, records = tmp_path / "tally", 2 * KEYS
    values = [value for chunk in Load("t", records, 100, keyed=True).chunks() for value in chunk]
    Tally.create(path, workers=2, records=records)
    with (
        Tally(path, worker=0, workers=2, records=records) as one,
        Tally(path, worker=1, workers=2, records=records) as other,
    ):
        first, second = WorkLog(one.handed), WorkLog(other.handed)
        first.see(values[0])
        second.see(values[KEYS])
        assert second.result().disordered == 0
        second.see(values[KEYS + 1])  # the first worker has the one before it only after that
        first.see(values[1])
        second.see(values[0])
        assert (first.result().disordered, second.result().disordered, second.result().repeated) == (0, 1, 1)
        one.add(records - 1)
        assert not one.done, "what was handed out is no count"


def test_workers_know_when_all_of_them_are_done(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    Tally.create(path, workers=2, records=100)
    with Tally(path, worker=0, workers=2, records=100) as one, Tally(path, worker=1, workers=2, records=100) as other:
        one.add(60)
        other.add(39)
        assert (one.done, other.done) == (False, False)
        other.add(1)
        assert (one.done, other.done) == (True, True)


def test_workers_that_stand_still_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("compare.tally.IDLE_SECONDS", 0.0)
    Tally.create(tmp_path / "tally", workers=1, records=10)
    tally = Tally(tmp_path / "tally", worker=0, workers=1, records=10)
    with pytest.raises(LogbrokerError, match="stand still at 0 of 10"):
        any(tally.done for _ in range(10**6))


@pytest.mark.parametrize(
    ("kind", "records", "disordered", "repeated", "problem"),
    [
        ("work", 9, 0, 0, "19 deliveries of 20"),
        ("work", 10, 0, 1, "1 of them again"),
        ("ordered", 10, 1, 0, "1 records of 'ordered' out of order"),
        ("work", 10, 1, 0, None),
    ],
)
def test_what_is_lost_or_came_twice_or_out_of_order_has_no_figure(
    kind: Kind, records: int, disordered: int, repeated: int, problem: str | None
) -> None:
    done = [Worked(10, 0.0, 1.0, 0, 0), Worked(records, 0.0, 1.0, disordered, repeated)]
    with pytest.raises(LogbrokerError, match=problem) if problem else nullcontext():
        check_worked(kind, 20, done)


def test_the_first_latencies_wait_for_connections_and_do_not_count() -> None:
    class Timed(LogbrokerClient):
        def latencies(self, topic: str, records: int, per_second: float) -> list[float]:
            return [float(number) for number in range(records)]

    client = Timed("127.0.0.1:1")
    assert Latencies("t", 2, 3, 1000.0).run(client, "") == [2.0, 3.0, 4.0]


def test_a_stopwatch_tells_what_has_not_come() -> None:
    watch = Stopwatch(2)
    values = [watch.value(number, 0.0) for number in range(2)]
    assert not watch.see(values[1])
    assert min(watch.result()) < 0
    assert watch.see(values[0])
    assert min(watch.result()) > 0


def _figures(peer: str, durability: Durability, *values: float, lower: bool = False) -> Iterator[Figure]:
    workload, measured, unit = ("start", "to the first record", "s") if lower else ("publish", "100 B", "records/s")
    for value in values:
        yield Figure(
            workload=workload,
            measured=measured,
            peer=peer,
            durability=durability,
            value=value,
            unit=unit,
            lower_is_better=lower,
        )


def test_each_side_is_held_against_the_same_durability() -> None:
    lines = report.lines_of(
        [
            *_figures("redis", WRITTEN, 100, 300, 200),
            *_figures("redis", SYNCED, 50),
            *_figures("logbroker", WRITTEN, 400),
            *_figures("logbroker", SYNCED, 25),
        ]
    )
    assert [(line.peer, line.durability, line.median, line.advantage) for line in lines] == [
        ("logbroker", WRITTEN, 400, None),
        ("redis", WRITTEN, 200, 2.0),
        ("redis", SYNCED, 50, 0.5),
        ("logbroker", SYNCED, 25, None),
    ]
    assert lines[1].cells("Redis") == ("100 B", "Redis", "written", "200", "100 - 300", "records/s", "2.00x ahead")
    assert lines[2].cells("Redis")[-1] == "2.00x behind"


def test_a_line_says_where_rounds_of_both_overlap() -> None:
    figures = [*_figures("redis", WRITTEN, 100, 300, 200), *_figures("logbroker", WRITTEN, 400, 260, 300)]
    assert report.lines_of(figures)[1].cells("Redis")[-1] == "1.50x ahead, ranges overlap"


def test_less_is_better_where_it_is() -> None:
    figures = [*_figures("redis", WRITTEN, 0.1, lower=True), *_figures("logbroker", WRITTEN, 0.4, lower=True)]
    redis, ours = report.lines_of(figures)
    assert (redis.peer, ours.peer) == ("redis", "logbroker")
    assert redis.cells("Redis")[-1] == "4.00x behind"


def test_a_line_says_where_the_durabilities_differ() -> None:
    figures = [*_figures("rabbitmq-quorum", SYNCED, 6, lower=True), *_figures("logbroker", WRITTEN, 0.5, lower=True)]
    [line] = [line for line in report.lines_of(figures) if line.peer != "logbroker"]
    assert line.cells("RabbitMQ")[2] == "synced (logbroker: written)"


def test_the_markdown_has_every_line_every_setting_and_what_was_left_out() -> None:
    figures = [*_figures("redis", SYNCED, 50), *_figures("logbroker", SYNCED, 25)]
    versions = {"redis": "7.0", "logbroker": "0.1"}
    text = report.markdown(
        Comparison(versions=versions, left_out=["NATS: not found"], figures=figures, machine="2 processors"),
        list(PEERS.values()),
    )
    assert text.startswith("Measured on: 2 processors.\n")
    assert "| 100 B | Redis Streams | synced | 50.00 | 50.00 - 50.00 | records/s | 2.00x behind |" in text
    assert "appendfsync always" in text
    assert "- NATS: not found." in text
    assert "RabbitMQ" not in text


def test_every_peer_says_what_it_promises_does_and_cannot_do() -> None:
    for peer in PEERS.values():
        assert peer.promises
        assert set(peer.notes) | set(peer.cannot) <= set(WORKLOADS)
        assert peer.install or peer.name == "logbroker"


def test_a_peer_that_is_not_installed_is_left_out_with_how_to_install_it() -> None:
    absent = msgspec.structs.replace(PEERS["redis"], binaries=("no-such-server",), modules=())
    plan = Plan(workloads=["publish"], rounds=1, records=100, seconds=1, restart_bytes=0)
    found = compare([absent], plan, lambda _: None)
    assert found.figures == []
    assert found.left_out == [f"{absent.title}: no-such-server not found; {absent.install}"]


@pytest.mark.prove
def test_a_server_that_does_not_start_is_left_out_with_its_last_words(tmp_path: Path) -> None:
    from compare.peers.server import ServerProcess

    def server(directory: Path, _: Durability) -> ServerProcess:
        command = ["/bin/sh", "-c", "echo no luck today; exit 3"]
        return ServerProcess(command, address="127.0.0.1:1", directory=directory)

    peer = msgspec.structs.replace(PEERS["logbroker"], server=server)
    plan = Plan(workloads=["publish"], rounds=2, records=100, seconds=1, restart_bytes=0, directory=tmp_path)
    found = compare([peer], plan, lambda _: None)
    assert len(found.left_out) == 2  # one for each durability, and no second round of what has failed
    assert all("no luck today" in each for each in found.left_out)
    assert list(found.versions) == ["logbroker"]
    assert list(tmp_path.iterdir()) == []


def test_a_directory_in_memory_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert machine.file_system(Path("/proc/self")) == "proc"
    assert f"data on {machine.file_system(tmp_path)}" in machine.words(tmp_path)
    monkeypatch.setattr(machine, "file_system", lambda _: "tmpfs")
    plan = Plan(workloads=["publish"], rounds=1, records=100, seconds=1, restart_bytes=0, directory=tmp_path)
    assert compare([], plan, lambda _: None).left_out == [
        f"{tmp_path} is a tmpfs: a sync costs nothing there; give a directory on a disk"
    ]


def _compared(peer: str, workloads: set[str]) -> dict[str, Any]:
    arguments = ["--peers", peer, "--workloads", ",".join(workloads), "--records", "1000", "--seconds", "0.2"]
    arguments += ["--rounds", "1", "--restart-gb", "0.01"]
    command = [sys.executable, "-m", "compare", *arguments, "--json"]
    found: dict[str, Any] = json.loads(subprocess.run(command, cwd=ROOT, capture_output=True, check=True).stdout)
    assert {line["workload"] for line in found["lines"]} == workloads
    assert all(line["median"] > 0 for line in found["lines"])
    return found


@pytest.mark.prove
def test_logbroker_does_every_workload() -> None:
    assert _compared("logbroker", set(WORKLOADS))["left_out"] == []


@pytest.mark.prove
@pytest.mark.skipif(PEERS["redis"].missing() is not None, reason="Redis or its client library is not installed")
def test_redis_does_what_it_is_asked_for() -> None:
    found = _compared("redis", {"publish", "replay", "ordered"})
    assert {line["durability"] for line in found["lines"]} == {"written", "synced"}


def test_a_late_tick_brings_all_that_are_due_and_counts_from_then() -> None:
    ticks = pace(100, 1000.0)
    first = next(ticks)
    time.sleep(0.02)  # the server took so long
    late = next(ticks)
    assert [number for number, _ in late] == list(range(len(first), len(first) + len(late)))
    assert len(late) >= 15
    assert late[0][1] <= time.monotonic() - 0.01


def test_kafkas_directory_is_formatted_for_any_id_and_a_failure_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[list[str]] = []
    begins_with_a_dash = uuid.UUID(int=0xF8 << 120)  # in base64

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 1, stdout="", stderr="no luck today\n")

    monkeypatch.setattr(uuid, "uuid4", lambda: begins_with_a_dash)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(BrokerUnavailableError, match="could not be formatted: no luck today"):
        kafka_server.server(tmp_path, WRITTEN)
    assert [argument for argument in commands[0] if argument.startswith("--cluster-id=-AAA")]


def test_a_figure_below_the_unit_of_a_tool_is_compared_with_nothing() -> None:
    """The tools count whole milliseconds."""
    for ours, told in ((0.0, "-"), (1.0, "2.00x ahead")):
        rounds = {kafka_tools.OURS: [ours], kafka_tools.KAFKA: [2.0]}
        row = kafka_tools.Row("end to end, p50", Durability.WRITTEN, "ms", rounds, True)
        assert row.cells()[-1] == told
