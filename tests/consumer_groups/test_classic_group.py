"""The machine of a classic group, step by step."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from logbroker.consumer_groups.classic.errors import (
    FencedInstanceIdError,
    GroupFullError,
    InconsistentProtocolError,
    MemberIdRequiredError,
    RebalanceInProgressError,
)
from logbroker.consumer_groups.classic.group import ClassicGroup, ClassicState
from logbroker.consumer_groups.classic.member import MEMBER_BYTES, NEW_MEMBER_SECONDS, PROTOCOL_BYTES, MemberBudget
from logbroker.consumer_groups.classic.messages import (
    ClassicAnswer,
    ClassicJoin,
    ClassicJoined,
    ClassicSynced,
    member_id_of,
)
from logbroker.consumer_groups.messages import MAX_ID_BYTES
from logbroker.consumer_groups.rows import HEADER_ROW
from logbroker.errors import CorruptLogError, InvalidRequestError, LogbrokerError, UnknownMemberError

SESSION, REBALANCE = 10.0, 30.0
RANGE = (("range", b"r"),)


class Bench:
    """A group, with what it has stored and answered."""

    def __init__(self, *, delay: float = 0.0, max_members: int = 10, budget: MemberBudget | None = None) -> None:
        self.settings: dict[str, Any] = {"initial_delay_seconds": delay, "max_members": max_members, "budget": budget}
        self.group = ClassicGroup("g", **self.settings)
        self.now = 1000.0
        self.answers: dict[int, ClassicAnswer] = {}
        self.rows: dict[bytes, bytes] = {}
        self._tickets = 0

    def join(self, name: str, member_id: str = "", **fields: Any) -> int:
        """Join, and return the ticket. Members get their names for ids."""
        self._tickets += 1
        settings: dict[str, Any] = {
            "member_id": member_id,
            "new_member_id": name,
            "protocol_type": "consumer",
            "protocols": RANGE,
            "session_timeout_ms": int(SESSION * 1000),
            "rebalance_timeout_ms": int(REBALANCE * 1000),
            "requires_known_id": False,
        }
        self.group.join(ClassicJoin(**settings | fields), self._tickets, self.now)
        self.step()
        return self._tickets

    def sync(self, member_id: str, **assignments: bytes) -> int:
        self._tickets += 1
        group = self.group
        group.sync(member_id, "", group.generation, None, None, assignments, self._tickets, self.now)
        self.step()
        return self._tickets

    def heartbeat(self, member_id: str, instance_id: str = "") -> None:
        self.group.heartbeat(member_id, instance_id, self.group.generation, self.now)

    def step(self) -> None:
        outputs = self.group.take_outputs(int(self.now * 1000))
        self.answers |= dict(outputs.answers)
        for event in outputs.events:
            if event.value is None:
                self.rows.pop(event.key, None)
            else:
                self.rows[event.key] = event.value

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        assert (self.group.deadline() <= self.now) or not self.group.is_due(self.now)
        self.group.tick(self.now)
        assert not self.group.is_due(self.now), "it would be called again at once, and so without end"
        self.step()

    def restart(self) -> None:
        self.group = ClassicGroup("g", **self.settings)
        self.group.load(self.rows, self.now)

    def joined(self, ticket: int) -> ClassicJoined:
        answer = self.answers[ticket]
        assert isinstance(answer, ClassicJoined), answer
        return answer

    def error(self, ticket: int) -> LogbrokerError:
        answer = self.answers[ticket]
        assert isinstance(answer, LogbrokerError)
        return answer

    def stable(self, *names: str, **fields: Any) -> None:
        """Begin a generation of these members, and assign it."""
        known = {member.member_id for member in self.group.members()}
        for name in names:
            self.join(name, name if name in known else "", **fields)
        for name in names[1:]:
            if self.group.state is ClassicState.PREPARING:
                self.join(names[0], names[0], **fields)
            if self.group.state is ClassicState.PREPARING:
                self.join(name, name, **fields)
        assert len(self.group) == len(names)
        assignments: dict[str, Any] = {name: name.encode() for name in names}
        self.sync(self.group.leader_id, **assignments)
        for name in names:
            self.sync(name)
        assert self.group.state is ClassicState.STABLE


# --- the beginning ---


def test_a_new_group_waits_for_further_members_but_not_for_longer_than_they_allow() -> None:
    bench = Bench(delay=3.0)
    first = bench.join("a", rebalance_timeout_ms=7_000)
    bench.pass_time(2.9)
    second = bench.join("b", rebalance_timeout_ms=7_000)
    bench.pass_time(0.2)
    assert not bench.answers, "b has prolonged the wait"
    bench.pass_time(2.7)
    third = bench.join("c", rebalance_timeout_ms=7_000)
    bench.pass_time(0.3)
    assert not bench.answers
    bench.pass_time(1.0)
    assert {bench.joined(ticket).generation for ticket in (first, second, third)} == {1}
    assert len(bench.joined(first).members) == 3


def test_a_new_group_of_one_waits_once() -> None:
    bench = Bench(delay=3.0)
    first = bench.join("a")
    assert bench.group.deadline() == bench.now + 3.0
    bench.pass_time(3.0)
    assert bench.joined(first).leader_id == "a"


def test_a_group_whose_members_leave_while_it_begins_is_empty() -> None:
    bench = Bench(delay=3.0)
    first = bench.join("a")
    bench.group.leave("a", "", bench.now)
    bench.step()
    assert isinstance(bench.error(first), UnknownMemberError)
    assert bench.group.state is ClassicState.EMPTY
    assert bench.group.empty_since_ms == int(bench.now * 1000)


def test_an_id_that_is_given_out_is_waited_for_until_it_expires() -> None:
    bench = Bench()
    bench.stable("a")
    given = bench.join("b", requires_known_id=True)
    assert bench.error(given).member_id == "b"  # type: ignore[attr-defined]
    assert isinstance(bench.error(given), MemberIdRequiredError)
    again = bench.join("a", "a")  # The leader begins a generation.
    assert again not in bench.answers
    bench.pass_time(SESSION)
    assert bench.joined(again).generation == 2
    with pytest.raises(UnknownMemberError):
        bench.join("b", "b")


# --- generations ---


def test_who_does_not_join_in_time_is_no_member() -> None:
    bench = Bench()
    bench.stable("a", "b")
    newcomer = bench.join("c")
    bench.join("a", "a")
    for _ in range(int(REBALANCE) - 1):
        bench.pass_time(1.0)
        with pytest.raises(RebalanceInProgressError):
            bench.heartbeat("b")
    assert newcomer not in bench.answers
    bench.pass_time(1.0)
    assert bench.joined(newcomer).generation == bench.group.generation
    assert [member.member_id for member in bench.group.members()] == ["a", "c"]
    with pytest.raises(UnknownMemberError):
        bench.group.check_commit("b", "", bench.group.generation - 1, bench.now)


def test_who_does_not_ask_for_its_assignment_in_time_is_no_member() -> None:
    bench = Bench()
    bench.join("a")
    second = bench.join("b")
    bench.join("a", "a")
    leader = bench.joined(second).leader_id
    bench.sync(leader)
    for _ in range(int(REBALANCE)):
        bench.pass_time(1.0)
        for member in list(bench.group.members()):
            if bench.group.state is ClassicState.STABLE:
                bench.heartbeat(member.member_id)
    assert [member.member_id for member in bench.group.members()] == [leader]


def test_members_that_wait_do_not_expire_and_a_lost_leader_sets_them_free() -> None:
    bench = Bench()
    bench.join("a")
    bench.join("b")
    bench.join("a", "a")
    leader = bench.group.leader_id
    follower = {"a": "b", "b": "a"}[leader]
    waiting = bench.sync(follower)
    bench.pass_time(SESSION)
    assert isinstance(bench.error(waiting), RebalanceInProgressError)
    assert [member.member_id for member in bench.group.members()] == [follower]
    assert bench.joined(bench.join(follower, follower)).leader_id == follower


def test_a_first_join_does_not_wait_forever() -> None:
    bench = Bench()
    bench.stable("a", rebalance_timeout_ms=1_000_000)
    newcomer = bench.join("b", rebalance_timeout_ms=1_000_000)
    for _ in range(int(NEW_MEMBER_SECONDS)):
        bench.pass_time(1.0)
        with pytest.raises(RebalanceInProgressError):
            bench.heartbeat("a")
        if newcomer in bench.answers:
            break
    else:
        pytest.fail("it still waits")
    assert isinstance(bench.error(newcomer), UnknownMemberError)


def test_a_join_that_is_repeated_replaces_the_one_before() -> None:
    bench = Bench()
    bench.stable("a", "b")
    first = bench.join("a", "a", protocols=(("range", b"changed"),))
    second = bench.join("a", "a", protocols=(("range", b"changed"),))
    assert isinstance(bench.error(first), RebalanceInProgressError)
    bench.join("b", "b")
    assert bench.joined(second).generation == bench.group.generation


def test_a_join_that_changes_nothing_gets_the_present_generation() -> None:
    bench = Bench()
    bench.stable("a", "b")
    generation, leader = bench.group.generation, bench.group.leader_id
    follower = {"a": "b", "b": "a"}[leader]
    answer = bench.joined(bench.join(follower, follower))
    assert (answer.generation, answer.members) == (generation, [])
    assert bench.group.state is ClassicState.STABLE
    bench.join(leader, leader)
    assert bench.group.state.value == "PreparingRebalance"


def test_the_protocol_with_the_most_votes_among_those_that_all_have() -> None:
    bench = Bench(delay=1.0)
    bench.join("a", protocols=(("x", b"ax"), ("y", b"ay"), ("z", b"az")))
    bench.join("b", protocols=(("y", b"by"), ("x", b"bx")))
    last = bench.join("c", protocols=(("w", b""), ("y", b"cy"), ("x", b"cx")))
    bench.pass_time(1.0)
    bench.pass_time(1.0)
    assert bench.joined(last).protocol == "y"
    leader = bench.group.leader_id
    assert leader == "a"
    members = {member_id: data for member_id, _, data in bench.joined(1).members}
    assert members == {"a": b"ay", "b": b"by", "c": b"cy"}
    with pytest.raises(InconsistentProtocolError):
        bench.join("d", protocols=(("w", b""), ("z", b"")))
    with pytest.raises(InconsistentProtocolError):
        bench.join("a", "a", protocols=(("z", b""),))


# --- static members ---


def test_a_static_member_that_is_away_keeps_its_place_over_a_rebalance() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i")
    bench.join("b")
    bench.pass_time(SESSION / 2)
    with pytest.raises(RebalanceInProgressError):
        bench.heartbeat("a", "i")
    bench.pass_time(SESSION)
    assert [member.member_id for member in bench.group.members()] == ["b"], "its session is over"


def test_a_static_member_that_comes_back_with_another_choice_begins_a_generation() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    bench = Bench()
    bench.stable("a", protocols=both, instance_id="i")
    assert bench.group.protocol == "range"
    waiting = bench.join("a2", instance_id="i", protocols=both[::-1])
    assert bench.joined(waiting).generation == 2
    assert bench.group.protocol == "sticky"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_static_member_stays_one_if_its_next_join_does_not_say_so(is_restarted: bool) -> None:
    bench = Bench()
    bench.stable("a", instance_id="i")
    bench.join("", "a", protocols=(("range", b"other"),))
    bench.sync("a")
    if is_restarted:
        bench.restart()
    bench.heartbeat("a", "i")
    bench.group.leave("", "i", bench.now)
    bench.step()
    assert not len(bench.group)
    bench.stable("a2", instance_id="i")


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_nothing_is_due_again_at_once_whatever_the_rebalance_timeout(timeout_ms: int) -> None:
    bench = Bench()
    bench.stable("a", instance_id="i", rebalance_timeout_ms=timeout_ms)
    bench.join("b", rebalance_timeout_ms=timeout_ms)
    bench.group.leave("b", "", bench.now)
    for _ in range(5):
        bench.pass_time(0.2)
        assert bench.group.state is ClassicState.PREPARING, "it waits for the member that is away"


def test_a_static_member_that_comes_back_fences_what_waits() -> None:
    bench = Bench(delay=5.0)
    waiting = bench.join("a", instance_id="i")
    again = bench.join("a2", instance_id="i")
    assert isinstance(bench.error(waiting), FencedInstanceIdError)
    bench.pass_time(5.0)
    bench.pass_time(5.0)
    assert bench.joined(again).member_id == "a2"
    with pytest.raises(FencedInstanceIdError):
        bench.group.check_commit("a", "i", 1, bench.now)
    with pytest.raises(UnknownMemberError):
        bench.group.check_commit("a", "", 1, bench.now)


# --- bounds ---


def test_members_take_a_bounded_amount_of_memory() -> None:
    budget = MemberBudget(max_bytes=4 * MEMBER_BYTES + PROTOCOL_BYTES, max_group_bytes=3 * MEMBER_BYTES)
    bench, other = Bench(budget=budget), Bench(budget=budget)
    bench.stable("a", protocols=(("range", b"r" * MEMBER_BYTES),))
    with pytest.raises(GroupFullError):
        bench.join("b", protocols=(("range", b"r" * MEMBER_BYTES),))
    assert bench.group.state is ClassicState.STABLE
    with pytest.raises(GroupFullError):
        bench.join("a", "a", protocols=(("range", b"r" * (3 * MEMBER_BYTES)),))
    other.stable("a")
    with pytest.raises(GroupFullError):
        other.join("b")
    bench.join("a", "a")
    with pytest.raises(GroupFullError):
        bench.sync("a", a=b"a" * (3 * MEMBER_BYTES))
    bench.sync("a", a=b"a" * (MEMBER_BYTES // 2))
    for each in (bench, other):
        each.group.leave("a", "", each.now)
    assert budget.used_bytes == 0


@pytest.mark.parametrize(
    ("protocols", "name_size", "data_size"), [(20_000, 5, 0), (20_000, 5, 1), (500, 50, 50), (2, 5, 100_000)]
)
def test_no_group_takes_more_memory_than_is_counted(protocols: int, name_size: int, data_size: int) -> None:
    """Whatever takes the most room: members, the names of their protocols, or their data."""
    budget = MemberBudget(max_group_bytes=1 << 40)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        group = ClassicGroup("g", initial_delay_seconds=0, max_members=10, budget=budget)
        for number in range(5):
            join = ClassicJoin(
                new_member_id=f"member-{number}",
                protocol_type="consumer",
                protocols=tuple((f"{each:0{name_size}}", bytes([each % 256]) * data_size) for each in range(protocols)),
                session_timeout_ms=1000,
                rebalance_timeout_ms=1000,
                requires_known_id=False,
            )
            group.join(join, number, 0.0)
            group.take_outputs(0)
            del join
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken - before < budget.used_bytes


@pytest.mark.parametrize(
    "fields",
    [
        {"instance_id": "i" * (MAX_ID_BYTES + 1)},
        {"protocol_type": "t" * 101},
        {"protocols": (("range", b""), ("range", b""))},
    ],
)
def test_a_join_is_checked(fields: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequestError):
        Bench().join("a", **fields)


def test_ids_of_members_fit_into_a_row() -> None:
    for prefix in ("", "client", "\U0001f600" * 1000, "x" * 40_000):
        member_id = member_id_of(prefix, "u" * 36)
        assert len(member_id.encode()) <= MAX_ID_BYTES
        assert member_id.endswith("-" + "u" * 36)


# --- restarts ---


def test_a_restart_goes_on_in_the_generation() -> None:
    bench = Bench()
    bench.stable("a", "b")
    generation, leader = bench.group.generation, bench.group.leader_id
    bench.restart()
    assert (bench.group.state, bench.group.generation, bench.group.leader_id) == (
        *(ClassicState.STABLE, generation),
        leader,
    )
    bench.heartbeat("a")
    answer = bench.answers[bench.sync("b")]
    assert isinstance(answer, ClassicSynced)
    assert answer.assignment == b"b"
    bench.pass_time(SESSION)
    assert not len(bench.group), "sessions began anew, and are over"
    assert bench.group.generation == generation + 1
    assert list(bench.rows) == [HEADER_ROW]
    bench.restart()
    assert (bench.group.state, bench.group.generation) == (ClassicState.EMPTY, generation + 1)
    assert bench.group.empty_since_ms == int(bench.now * 1000)


def test_a_restart_before_the_assignment_waits_for_it() -> None:
    bench = Bench()
    first = bench.join("a")
    bench.restart()
    assert bench.group.state is ClassicState.COMPLETING
    assert bench.group.generation == bench.joined(first).generation
    with pytest.raises(RebalanceInProgressError):
        bench.group.check_commit("a", "", 1, bench.now)
    bench.sync("a", a=b"x")
    assert bench.group.state.value == "Stable"


def test_a_restart_in_a_rebalance_falls_back_to_the_generation_before() -> None:
    bench = Bench()
    bench.stable("a", "b")
    generation = bench.group.generation
    bench.join("c")
    bench.group.leave("b", "", bench.now)
    bench.step()
    bench.restart()
    assert (bench.group.state, bench.group.generation) == (ClassicState.STABLE, generation)
    bench.heartbeat("b")
    with pytest.raises(UnknownMemberError):
        bench.heartbeat("c")


def test_two_stored_members_of_one_instance_are_corruption() -> None:
    bench = Bench()
    bench.stable("a", instance_id="i")
    bench.rows[b"mb"] = bench.rows[b"ma"]
    with pytest.raises(CorruptLogError, match="instance id 'i'"):
        bench.restart()


def test_a_stored_leader_that_is_no_member_is_corruption() -> None:
    bench = Bench()
    bench.stable("a")
    bench.rows[b"mb"] = bench.rows.pop(b"ma")
    with pytest.raises(CorruptLogError, match="leader 'a'"):
        bench.restart()
