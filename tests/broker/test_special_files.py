"""Whatever lies in the place of a file of a data directory: no start hangs, and what is said names the path, what is
there, and what to do."""

from __future__ import annotations

import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Final

import pytest

from logbroker.broker.broker import Broker
from logbroker.engine import Append, Read, ReadResult
from logbroker.errors import CorruptLogError, LogbrokerError, PartitionOfflineError
from logbroker.errors.system import system_error_text
from logbroker.queues.group import QueueGroup
from logbroker.queues.model.settings import Ordering, Priority, QueueGroupSettings
from logbroker.queues.model.starts import StartAt
from logbroker.storage import system_calls
from logbroker.storage.files import MAX_SMALL_BYTES
from logbroker.storage.index_file import MAX_INDEX_BYTES
from logbroker.storage.metadata.metadata_store import MetadataReader
from logbroker.tools.metadata_backup import back_up
from logbroker.tools.segments.locate import check_not_special
from tests.broker.conftest import OpenEngine, batch, broker_on
from tests.cli.command import failure_of
from tests.homes import home_of
from tests.no_permission import without_permission
from tests.queues.shell import hello, take, until

LOG: Final = f"{0:020d}"
LARGE_BYTES: Final = 1 << 29
"""No disk is used for it."""


_HANGS_SECONDS: Final = 60


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    """A call that waits for a FIFO holds up the event loop, and with it every other deadline."""

    hung: list[str] = []

    def fail(_signal: int, frame: FrameType | None) -> None:
        hung.append(str(frame))
        raise AssertionError("it hangs")  # Some callers suppress it, and go on.

    before = signal.signal(signal.SIGALRM, fail)
    signal.setitimer(signal.ITIMER_REAL, _HANGS_SECONDS, 1)  # Again and again: the stop may hang, too.
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)
    assert not hung


def a_file(path: Path) -> None:
    path.touch()


def a_directory(path: Path) -> None:
    path.mkdir()


def a_fifo(path: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path) -> None:
    os.mknod(path, stat.S_IFSOCK | 0o600)


def a_device(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root makes devices")


def a_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


def a_loop(path: Path) -> None:
    path.symlink_to(path.name)


KINDS: Final[dict[Callable[[Path], None], str]] = {
    a_file: "a file",
    a_directory: "a directory",
    a_fifo: "a FIFO",
    a_socket: "a socket",
    a_device: "a device",
    a_dangling_link: "a symbolic link",
    a_loop: "a symbolic link",
}
OF_THE_BROKER: Final = ("lock", "meta", "meta/data.mdb", "meta/lock.mdb", "issued-numbers")
OF_THE_INDEX: Final = (
    "queue-index",
    "queue-index/g.index",
    "queue-index/gone.index",
    "queue-index/g.index/checkpoint",
    "queue-index/g.index/checkpoint.new",
    "queue-index/g.index/1.blocks",
)
OF_A_PARTITION: Final = (
    "bad-0",
    f"bad-0/{LOG}.log",
    f"bad-0/{LOG}.index",
    f"bad-0/{LOG}.timeindex",
    "bad-0/partition.metadata",
    "bad-0/leader-epoch-checkpoint",
)
DIRECTORIES: Final = ("meta", "bad-0", "queue-index", "g.index", "gone.index")
ADVICE: Final = ("move away", "move it away", "put the file", "move that away", "move the directory", "restore")


def table(*places: str) -> pytest.MarkDecorator:
    """Parametrize over the things that do not belong in each place."""
    return pytest.mark.parametrize(
        ("place", "thing"),
        [
            (place, thing)
            for place in places
            for thing in KINDS
            if thing is not (a_directory if Path(place).name in DIRECTORIES else a_file)
        ],
    )


def put(path: Path, thing: Callable[[Path], None]) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    thing(path)


def check_text(text: str, path: Path, thing: Callable[[Path], None]) -> None:
    assert str(path) in text
    assert KINDS[thing] in text
    assert any(advice in text for advice in ADVICE), text


async def fill(open_at: OpenEngine) -> None:
    async with open_at() as opened:
        for name in ("good", "bad"):
            topic = await opened.engine.create_topic(name, 1, {})
            await opened.append(topic.id, name.encode())


@pytest.mark.prove(keep=3)
@table(*OF_THE_BROKER)
async def test_in_the_place_of_what_the_whole_broker_needs(
    open_at: OpenEngine, tmp_path: Path, thing: Callable[[Path], None], place: str
) -> None:
    await fill(open_at)
    path = tmp_path / "data" / place
    put(path, thing)
    try:
        async with open_at() as opened:
            [found] = await opened.engine.read([Read(opened.engine.topic("bad").id, 0, 0, 1 << 20)])
            assert isinstance(found, ReadResult)
            assert (place, thing) == ("lock", a_dangling_link)  # What it leads to is made.
    except LogbrokerError as error:
        check_text(error.message, path, thing)
    except OSError as error:
        check_text(system_error_text(error), path, thing)


@pytest.mark.prove(keep=3)
@table(*OF_A_PARTITION)
@pytest.mark.parametrize("is_known", [True, False])
async def test_in_the_place_of_what_one_partition_needs(
    open_at: OpenEngine, tmp_path: Path, thing: Callable[[Path], None], place: str, *, is_known: bool
) -> None:
    """`is_known`: the metadata store knows what the partition held; else only its files tell."""
    if is_known:
        await fill(open_at)
    else:
        async with open_at() as opened:
            for name in ("good", "bad"):
                await opened.engine.create_topic(name, 1, {})
    path = tmp_path / "data" / place
    put(path, thing)
    async with open_at() as opened:
        [found] = await opened.engine.read([Read(opened.engine.topic("bad").id, 0, 0, 1 << 20)])
        if isinstance(found, PartitionOfflineError):
            check_text(found.message, path, thing)
        else:
            assert isinstance(found, ReadResult)
            assert not place.endswith(".log")
        assert await opened.append(opened.engine.topic("good").id, b"more") == is_known
        assert opened.failures == []


async def prioritized(broker: Broker) -> QueueGroup:
    settings = QueueGroupSettings(priority=Priority.STRICT, ordering=Ordering.NONE)
    group, _ = await home_of(broker).queues.create("g", broker.engine.topic("t"), settings, StartAt())
    await until(lambda: not group.scanner.is_indexing and group.scanner.unscanned() == 0)
    return group


@pytest.mark.prove(keep=3)
@table(*OF_THE_INDEX)
@pytest.mark.parametrize("ending", ["stop", "delete"])
async def test_in_the_place_of_the_index_of_a_queue_group(
    tmp_path: Path, thing: Callable[[Path], None], place: str, ending: str
) -> None:
    """A start, work, a deletion and a stop wait for nothing, whether the thing came before the start or after it."""
    path = tmp_path / "data" / place
    async with broker_on(tmp_path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await broker.engine.append([Append(topic.id, 0, batch(b"one"))])
        group = await prioritized(broker)
        group.index_cache.close()
        assert (tmp_path / "data" / OF_THE_INDEX[-1]).exists()
        put(path, thing)
        await broker.engine.append([Append(topic.id, 0, batch(b"two"))])
        await until(lambda: group.queue.open_records == 2)
        if ending == "delete":
            await home_of(broker).queues.delete("g")
    path.parent.mkdir(parents=True, exist_ok=True)
    put(path, thing)
    async with broker_on(tmp_path) as broker:
        group = await prioritized(broker) if ending == "delete" else home_of(broker).queues.group("g")
        link = await group.connect(hello())
        assert [record.value for _, record in await take(link, 2)] == [b"one", b"two"]
        await link.goodbye()
        if ending == "delete":
            await home_of(broker).queues.delete("g")


async def test_an_index_of_queue_groups_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with broker_on(tmp_path) as broker:
        topic = await broker.engine.create_topic("t", 1, {})
        await broker.engine.append([Append(topic.id, 0, batch(b"one"))])
        await prioritized(broker)
    with without_permission(tmp_path / "data" / "queue-index", monkeypatch):
        async with broker_on(tmp_path) as broker:
            link = await home_of(broker).queues.group("g").connect(hello())
            assert [record.value for _, record in await take(link, 1)] == [b"one"]
            await link.goodbye()
    assert f"{tmp_path}/data/queue-index cannot be used: Permission denied; queue groups go on without" in caplog.text


async def test_a_metadata_store_that_may_not_be_entered_is_not_missing(
    open_at: OpenEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(open_at)
    data_dir = tmp_path / "data"
    with without_permission(data_dir / "meta", monkeypatch):
        refusals = []
        for act in (
            lambda: back_up(data_dir, tmp_path / "one.backup"),
            lambda: MetadataReader.open(data_dir / "meta"),
        ):
            with pytest.raises(LogbrokerError) as refused:
                act()
            refusals.append(refused.value.message)
        with pytest.raises(LogbrokerError) as refused:
            async with open_at():
                pass
        refusals.append(refused.value.message)
    for text in refusals:
        assert f"{data_dir}/meta" in text
        assert "Permission denied; make it readable and writable for the user that runs this" in text
        assert "restore" not in text
        assert "missing" not in text
    async with open_at() as opened:
        assert {topic.name for topic in opened.engine.topics()} == {"good", "bad"}


@pytest.mark.parametrize("place", ["issued-numbers", *OF_A_PARTITION[2:]])
async def test_what_is_small_is_not_read_whole_where_it_is_large(
    open_at: OpenEngine, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(open_at)
    path = tmp_path / "data" / place
    path.touch()
    os.truncate(path, LARGE_BYTES)
    read_bytes, pread = 0, system_calls.pread

    def counted(fd: int, size_bytes: int, position: int) -> bytes:
        nonlocal read_bytes
        found = pread(fd, size_bytes, position)
        read_bytes += len(found)
        return found

    monkeypatch.setattr(system_calls, "pread", counted)
    is_index = place.endswith("index")
    async with open_at() as opened:
        [found] = await opened.engine.read([Read(opened.engine.topic("bad").id, 0, 0, 1 << 20)])
        is_offline = isinstance(found, PartitionOfflineError)
        assert is_offline == (not is_index and place != "issued-numbers")
        if isinstance(found, PartitionOfflineError):
            assert str(path) in found.message
            assert "it has more than" in found.message
        else:
            await opened.append(opened.engine.topic("bad").id, b"more")
        assert await opened.append(opened.engine.topic("good").id, b"more") == 1
        assert opened.failures == []
    assert read_bytes < (MAX_INDEX_BYTES if is_index else MAX_SMALL_BYTES) + (1 << 20)


@pytest.mark.parametrize("thing", [thing for thing in KINDS if thing not in (a_file, a_directory)])
def test_a_repair_of_what_is_no_file(tmp_path: Path, thing: Callable[[Path], None]) -> None:
    for name in ("bad-0", f"{LOG}.log"):
        thing(tmp_path / name)
        with pytest.raises(CorruptLogError) as refusal:
            check_not_special(tmp_path / name)
        check_text(refusal.value.message, tmp_path / name, thing)
    if thing is a_fifo:
        for choice in ([], ["--cut"]):
            check_text(failure_of("segment", "repair", tmp_path / "bad-0", *choice), tmp_path / "bad-0", thing)
