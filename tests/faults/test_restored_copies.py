"""Copies that queue groups have made of records since a backup of the metadata was made."""

from __future__ import annotations

from pathlib import Path

import pytest

from logbroker.tools.metadata_backup import back_up, read_backup
from logbroker.tools.metadata_restore import extracted, plan_restore, restore
from tests.queues.retained import COPIES, KEYS, again, begin
from tests.queues.shell import shell, until


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("made_when", ["before the group", "before the copies", "before its topic was made anew"])
async def test_the_only_copies_of_records_stay_when_their_group_is_newer_than_the_backup(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, made_when: str
) -> None:
    """The next start would delete the topic of the copies of a group that it does not know."""
    data_dir, copies = tmp_path / "data", tmp_path / "data" / f"{COPIES}-0"
    async with shell(tmp_path) as opened:
        if made_when != "before the group":
            await begin(opened, [])
    made, _ = back_up(data_dir, tmp_path / "one.backup")
    async with shell(tmp_path) as opened:
        if made_when == "before its topic was made anew":
            await opened.engine.delete_topic(opened.engine.topic("t").id)
            await until(lambda: not opened.groups.has("g"))
        run = await (again if made_when == "before the copies" else begin)(opened, [b"blocked"])
        await run.write(KEYS, range(60))
        await run.work(7 * 60)
        await run.retain()
        batches = run.copied()
        assert batches
    before = {path.name: path.read_bytes() for path in copies.glob("*.log")}
    with extracted(read_backup(Path(made.path)), data_dir) as store:
        plan = plan_restore(made, store, data_dir)
        restore(plan, store, data_dir)
    async with shell(tmp_path) as opened:
        if made_when == "before the copies":
            assert any(f"{COPIES}: is found again, with the copies" in note for note in plan.notes)
            assert (await again(opened)).copied() == batches
        else:
            (note,) = (note for note in plan.notes if "queue group g: " in note)
            assert f"its copies of records that its topic no longer has stay in {COPIES}-0, but are not served" in note
            assert f"belong to no topic: {COPIES}-0" in caplog.text
    assert {path.name: path.read_bytes() for path in copies.glob("*.log")} == before
