"""One owner at any time, no orphan once quiet, epochs that only grow: whatever happens, and with bugs planted."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from logbroker.consumer_groups import group as group_module
from logbroker.consumer_groups.group import Group, Member
from logbroker.consumer_groups.member import loaded_member
from logbroker.consumer_groups.rows import MemberRow
from logbroker.types import PartitionKey
from tests.consumer_groups.simulation import World
from tests.consumer_groups.stateful import GroupMachine

TestGroup = GroupMachine.TestCase
TestGroup.settings = settings(max_examples=150, stateful_step_count=40)

# The same examples every time, none made smaller: whether a plant is caught must not depend on luck.
_HUNT = settings(
    max_examples=1_000,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    print_blob=False,
)


def assert_caught(world_class: type[World], *symptoms: str) -> None:
    machine = type("Planted", (GroupMachine,), {"world_class": world_class})
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(machine, settings=_HUNT)
    assert any(symptom in str(caught.value) for symptom in symptoms), caught.value


def planted(group_class: type[Group]) -> type[World]:
    return type("PlantedWorld", (World,), {"group_class": group_class})


def test_giving_before_the_release_is_caught() -> None:
    class GivesEarly(Group):
        def _assign(self, member: Member, now: float) -> None:
            for partition in self.target(member):
                if self._holders.get(partition) is not member:
                    self._holders.pop(partition, None)
            super()._assign(member, now)

    assert_caught(planted(GivesEarly), "two owners")


def test_an_assignment_that_is_lost_on_restart_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(member_id: str, row: MemberRow, now: float) -> Member:
        member = loaded_member(member_id, row, now)
        member.taken = frozenset()
        return member

    monkeypatch.setattr(group_module, "loaded_member", forgetful)
    assert_caught(World, "two owners", "not kept for it", "granted is not what is new")


def test_a_commit_that_is_accepted_from_an_old_epoch_is_caught() -> None:
    class TakesOldCommits(Group):
        def committable_partitions(self, member_id: str, epoch: int) -> frozenset[PartitionKey]:
            return self._connected(member_id).taken

    assert_caught(planted(TakesOldCommits), "commit of old epoch was accepted")


@pytest.mark.prove
def test_messages_that_leave_before_they_are_stored_are_caught() -> None:
    class Hasty(World):
        sends_before_sync = True

    assert_caught(Hasty, "two owners", "an epoch was given twice", "not kept for it")


def test_a_dead_member_that_keeps_its_partitions_is_caught() -> None:
    class KeepsForTheDead(Group):
        def tick(self, now: float) -> None:
            pass

    assert_caught(planted(KeepsForTheDead), "rebalancing, not stable", "orphans", "stable, not empty")
