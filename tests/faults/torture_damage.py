"""The columns of `make torture` that damage bytes: tails of every codec and of large batches, and flipped bits."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptLogError
from logbroker.record.compression import Codec
from logbroker.tools.metadata_backup import back_up, read_backup
from tests.crash.columns import Column
from tests.faults.damaged_tail import FILLERS, Tail, check_cut, check_flip, check_overwritten, flipped
from tests.storage.partition import NOW_MS, PartitionOnDisk, batch_of
from tests.tools.segment_files import StoppedPartition

_LARGE_BYTES: Final = 64 << 10
_PARTS: Final = 32
"""Parts of the places in a tail of large batches; one a seed."""
_CODECS: Final = list(Codec)
_FLIPS: Final = {"of a tail": 880, "of an index": 50, "of an epoch checkpoint": 20, "of a backup": 50}
"""A seed's; 1,000 in all."""


def damaged_tails(seed: int, _directory: Path) -> Mapping[str, int]:
    """Seeds below _PARTS: a part of the places in batches of 64 KiB; the others: all places, one codec each."""
    chance = random.Random(0)
    if seed < _PARTS:
        tail = Tail([chance.randbytes(_LARGE_BYTES) for _ in range(3)])
        places = range(seed, len(tail.content) + 1, _PARTS)
    else:
        tail = Tail([b"%d" % number * 200 for number in range(3)], _CODECS[seed - _PARTS])
        places = range(len(tail.content) + 1)
    for place in places:
        check_cut(tail, place)
        for filler in FILLERS:
            check_overwritten(tail, filler, place)
    return {"places": len(places), "states": 2 * len(places) * (1 + len(FILLERS))}


def bit_flips(seed: int, directory: Path) -> Mapping[str, int]:
    chance = random.Random(seed)
    tails = [Tail([chance.randbytes(chance.choice((1, 50, 3000))) for _ in range(3)], codec) for codec in _CODECS]
    for _ in range(_FLIPS["of a tail"]):
        tail = chance.choice(tails)
        check_flip(tail, chance.randrange(8 * len(tail.content)))
    _flip_partition_files(chance, directory / "t-0")
    stopped = StoppedPartition(directory / "data")
    stopped.stop()
    path = Path(back_up(stopped.data_dir, directory)[0].path)
    sound = path.read_bytes()
    for _ in range(_FLIPS["of a backup"]):
        path.write_bytes(flipped(sound, chance.randrange(8 * len(sound))))
        try:
            read_backup(path)
        except CorruptLogError:
            continue
        raise AssertionError("a flipped bit of a backup was not noticed")
    return Counter(_FLIPS)


def _flip_partition_files(chance: random.Random, directory: Path) -> None:
    """Flips in indexes cost time only; those in the epoch checkpoint are noticed, or change nothing."""
    partition = PartitionOnDisk(directory)
    for number in range(40):
        partition.append(batch_of(b"%d" % number, bytes(100), timestamp_ms=NOW_MS + number))
    partition.stop()
    indexes = [path for path in sorted(directory.glob("*index")) if path.stat().st_size]
    for _ in range(_FLIPS["of an index"]):
        path = chance.choice(indexes)
        sound = path.read_bytes()
        path.write_bytes(flipped(sound, chance.randrange(8 * len(sound))))
        partition.open()
        for offset in range(0, 80, 2):
            assert partition.log.read(offset, 1, nowait=False).next_offset == offset + 2
            assert partition.log.offset_for_time(NOW_MS + offset // 2).offset == offset
        partition.kill()
        path.write_bytes(sound)
    path = directory / "leader-epoch-checkpoint"
    sound = path.read_bytes()
    for _ in range(_FLIPS["of an epoch checkpoint"]):
        changed = flipped(sound, chance.randrange(8 * len(sound)))
        path.write_bytes(changed)
        with suppress(CorruptLogError):
            partition.open()
            partition.kill()
            assert changed.split() == sound.split(), "other epochs were not noticed"
    path.write_bytes(sound)


COLUMNS: Final = [
    Column(
        name="damaged-tails",
        about="a tail cut and overwritten from a 32nd of all places of 64 KiB batches, or from all of a codec's",
        seeds=range(_PARTS + len(_CODECS)),
        run=damaged_tails,
    ),
    Column(
        name="bit-flips",
        about=f"{sum(_FLIPS.values())} flipped bits of batches with every codec, indexes, epoch checkpoints, backups",
        seeds=range(50),
        run=bit_flips,
    ),
]
