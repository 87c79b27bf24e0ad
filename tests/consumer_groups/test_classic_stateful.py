"""One reader of a partition in a generation, generations that only grow, nobody who waits forever: whatever happens,
and with bugs planted."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from logbroker.consumer_groups.classic.group import ClassicGroup, ClassicState
from logbroker.consumer_groups.classic.member import ClassicMember
from tests.consumer_groups.classic_stateful import ClassicMachine
from tests.consumer_groups.classic_world import ClassicWorld
from tests.speeds import examples

TestClassicGroup = ClassicMachine.TestCase
TestClassicGroup.settings = settings(max_examples=examples(40, 2_000), stateful_step_count=40, deadline=None)

# The same examples every time, none made smaller: whether a plant is caught must not depend on luck.
_HUNT = settings(
    max_examples=1_000,
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate],
    report_multiple_bugs=False,
    print_blob=False,
)


def assert_caught(world_class: type[ClassicWorld], *symptoms: str) -> None:
    machine = type("Planted", (ClassicMachine,), {"world_class": world_class})
    with pytest.raises(AssertionError) as caught:
        run_state_machine_as_test(machine, settings=_HUNT)
    assert any(symptom in str(caught.value) for symptom in symptoms), caught.value


def planted(group_class: type[ClassicGroup]) -> type[ClassicWorld]:
    return type("PlantedWorld", (ClassicWorld,), {"group_class": group_class})


def test_a_commit_of_an_old_generation_that_is_accepted_is_caught() -> None:
    class TakesOldCommits(ClassicGroup):
        def _check_generation(self, generation: int) -> None:
            pass

    assert_caught(planted(TakesOldCommits), "a commit of an old generation was accepted")


def test_a_commit_of_a_fenced_member_that_is_accepted_is_caught() -> None:
    class TakesAnybodysCommits(ClassicGroup):
        def check_commit(self, member_id: str, instance_id: str, generation: int, now: float) -> None:
            if generation < 0:
                super().check_commit(member_id, instance_id, generation, now)
            elif len(self):
                self._check_generation(generation)

    assert_caught(planted(TakesAnybodysCommits), "a commit of a removed member was accepted")


def test_a_commit_beside_members_that_is_accepted_is_caught() -> None:
    class TakesStrangersCommits(ClassicGroup):
        def check_commit(self, member_id: str, instance_id: str, generation: int, now: float) -> None:
            if generation >= 0:
                super().check_commit(member_id, instance_id, generation, now)

    assert_caught(planted(TakesStrangersCommits), "a commit beside members")


def test_a_dead_member_that_stays_is_caught() -> None:
    class KeepsTheDead(ClassicGroup):
        def _remove(self, member: ClassicMember, now: float) -> None:
            pass

    assert_caught(planted(KeepsTheDead), "without clients", "members that are no clients", "not stable", "orphans")


def test_a_join_that_is_never_completed_is_caught() -> None:
    class WaitsForAll(ClassicGroup):
        def _complete(self, now: float) -> None:
            if all(member.join_ticket is not None for member in self.members()):
                super()._complete(now)
            else:
                self._joins_end_at = now + 1_000_000

    assert_caught(planted(WaitsForAll), "not stable", "without clients", "members that are no clients")


def test_answers_that_are_given_before_they_are_stored_are_caught() -> None:
    class Hasty(ClassicWorld):
        answers_before_sync = True

    assert_caught(Hasty, "went back")


def test_a_generation_that_is_lost_on_restart_is_caught() -> None:
    class Forgetful(ClassicGroup):
        def _store(self) -> None:
            self.generation -= self.state is ClassicState.COMPLETING
            super()._store()
            self.generation += self.state is ClassicState.COMPLETING

    assert_caught(planted(Forgetful), "went back")
