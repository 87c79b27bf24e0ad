"""The comparison with other brokers: its load, its bookkeeping, its report, and small real runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from logbroker.errors import LogbrokerError
from logbroker.tools.bench.compare import report
from logbroker.tools.bench.compare.load import Load, Stopwatch, WorkLog, key_of, pace, shard_of
from logbroker.tools.bench.compare.peer import WORKLOADS
from logbroker.tools.bench.compare.roster import PEERS
from logbroker.tools.bench.compare.run import Comparison, compare
from logbroker.tools.bench.compare.tally import Tally
from logbroker.tools.bench.compare.workloads import Figure, Plan
from logbroker.types import Durability
from tests.cli.command import output_of

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
    seen = WorkLog()
    for number in (0, 1, 10_001, 10_000, 20_000):
        seen.see(values[number])
    assert seen.result().disordered == 0
    seen.see(values[10_000])  # after 20,000, which has the same key
    found = seen.result()
    assert (found.records, found.disordered) == (6, 1)
    assert found.first is not None
    assert WorkLog().result().first is None


def test_workers_know_when_all_of_them_are_done(tmp_path: Path) -> None:
    path = tmp_path / "tally"
    Tally.create(path, 2)
    with Tally(path, worker=0, workers=2, records=100) as one, Tally(path, worker=1, workers=2, records=100) as other:
        one.add(60)
        other.add(39)
        assert (one.done, other.done) == (False, False)
        other.add(1)
        assert (one.done, other.done) == (True, True)


def test_workers_that_stand_still_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("logbroker.tools.bench.compare.tally.IDLE_SECONDS", 0.0)
    Tally.create(tmp_path / "tally", 1)
    tally = Tally(tmp_path / "tally", worker=0, workers=1, records=10)
    with pytest.raises(LogbrokerError, match="stand still at 0 of 10"):
        any(tally.done for _ in range(10**6))


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
        Comparison(versions=versions, left_out=["NATS: not found"], figures=figures), list(PEERS.values())
    )
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


def test_a_server_that_does_not_start_is_left_out_with_its_last_words(tmp_path: Path) -> None:
    from logbroker.tools.bench.compare.server import ServerProcess

    def server(directory: Path, _: Durability) -> ServerProcess:
        command = ["/bin/sh", "-c", "echo no luck today; exit 3"]
        return ServerProcess(command, address="127.0.0.1:1", directory=directory)

    peer = msgspec.structs.replace(PEERS["logbroker"], server=server)
    plan = Plan(workloads=["publish"], rounds=2, records=100, seconds=1, restart_bytes=0, directory=tmp_path)
    found = compare([peer], plan, lambda _: None)
    assert len(found.left_out) == 2  # one for each durability, and no second round of what has failed
    assert all("no luck today" in each for each in found.left_out)
    assert list(tmp_path.iterdir()) == []


def _compared(peer: str, workloads: set[str]) -> dict[str, Any]:
    arguments = ["--peers", peer, "--workloads", ",".join(workloads), "--records", "1000", "--seconds", "0.2"]
    arguments += ["--rounds", "1", "--restart-gb", "0.01"]
    found: dict[str, Any] = json.loads(output_of("bench", "compare", *arguments, "--json"))
    assert {line["workload"] for line in found["lines"]} == workloads
    assert all(line["median"] > 0 for line in found["lines"])
    return found


def test_logbroker_does_every_workload() -> None:
    assert _compared("logbroker", set(WORKLOADS))["left_out"] == []


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
