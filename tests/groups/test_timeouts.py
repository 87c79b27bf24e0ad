"""Members that freeze, linger or vanish: fenced, told so, and shut out."""

from __future__ import annotations

import time
from collections.abc import Iterator

import grpc
import pytest

from logbroker.embedded_broker import embedded
from tests.groups.conftest import HASTY_GRACE_SECONDS, Group

SHORT_MS = 400


def test_a_silent_member_is_fenced_and_its_partitions_go_on(group: Group) -> None:
    silent = group.member("silent", session_timeout_ms=SHORT_MS)
    silent.assigned()
    waiting = group.member("waiting")
    assert waiting.assigned() == {}
    silent.assigned(take=False)
    assert silent.fenced() == "SESSION_TIMED_OUT"
    waiting.holds({group.topic: [0, 1, 2, 3]})


def test_heartbeats_and_commits_keep_a_member_alive(group: Group) -> None:
    member = group.member("one", session_timeout_ms=SHORT_MS)
    member.assigned()
    until = time.monotonic() + 3 * SHORT_MS / 1000
    while time.monotonic() < until:
        member.heartbeat(polled=True)
        assert member.commit(group.topic, {0: 1}) == {}


def test_a_member_that_does_not_let_go_is_fenced(group: Group) -> None:
    holder = group.member("holder", rebalance_timeout_ms=SHORT_MS)
    holder.assigned()
    waiting = group.member("waiting")
    holder.assigned(take=False)
    assert holder.fenced() == "REBALANCE_TIMED_OUT"
    waiting.holds({group.topic: [0, 1, 2, 3]})


def test_a_member_that_does_not_poll_is_fenced_however_much_it_beats(group: Group) -> None:
    member = group.member("one", max_poll_interval_ms=SHORT_MS)
    member.assigned()
    with pytest.raises(StopIteration):  # noqa: PT012
        while True:
            member.send_heartbeat()
            response = member.next()
            if response.WhichOneof("response") == "fenced":
                assert response.fenced.status.reason == "POLL_TIMED_OUT"
    assert group.groups.describe(group.id).group.members == 0


def test_a_zombie_can_commit_nothing_until_it_has_joined_anew(group: Group) -> None:
    zombie = group.member("zombie", session_timeout_ms=SHORT_MS)
    zombie.assigned()
    assert zombie.commit(group.topic, {0: 2}) == {}
    heir = group.member("heir")
    heir.holds({group.topic: [0, 1, 2, 3]})
    assert heir.commit(group.topic, {0: 5}) == {}
    again = group.joining(
        "zombie", incarnation=zombie.incarnation, epoch=zombie.epoch, owned=zombie.held, session_timeout_ms=10_000
    )
    assert not again.joined().resumed
    assert again.assigned(take=False) == {}
    assert again.commit(group.topic, {0: 9}, epoch=zombie.epoch) == {0: "STALE_MEMBER_EPOCH"}
    assert again.commit(group.topic, {0: 9}, epoch=heir.epoch) == {0: "STALE_MEMBER_EPOCH"}
    assert again.commit(group.topic, {0: 9}, epoch=0) == {0: "NOT_OWNER"}
    assert group.groups.offsets(group.id) == {(group.topic, 0): 5}


def test_a_member_that_never_beats_and_never_reads_is_fenced(group: Group) -> None:
    member = group.joining("dead", session_timeout_ms=SHORT_MS)
    group.exists()  # By the dead: the heir comes second.
    heir = group.member("heir")
    heir.holds({group.topic: [0, 1, 2, 3]})
    assert [found.member_id for found in group.groups.describe(group.id).members] == ["heir"]
    member.break_()


def test_a_broken_stream_gives_its_partitions_away_after_the_grace(hasty_group: Group) -> None:
    group = hasty_group
    first = group.member("first")
    first.holds({group.topic: [0, 1, 2, 3]})
    second = group.member("second")
    assert second.assigned() == {}
    broken_at = time.monotonic()
    first.break_()
    second.holds({group.topic: [0, 1, 2, 3]})
    assert time.monotonic() - broken_at > HASTY_GRACE_SECONDS
    late = group.joining("first", incarnation=first.incarnation, epoch=first.epoch, owned=first.held)
    assert not late.joined().resumed


@pytest.mark.prove
def test_a_static_member_has_its_session_timeout_to_come_back(hasty_group: Group) -> None:
    group = hasty_group
    static = group.member("life-1", instance_id="instance", session_timeout_ms=2000)
    static.assigned()
    waiting = group.member("waiting")
    assert waiting.assigned() == {}
    left_at = time.monotonic()
    static.break_()
    waiting.holds({group.topic: [0, 1, 2, 3]})
    assert time.monotonic() - left_at > 1.5


@pytest.fixture(scope="module")
def impatient_group() -> Iterator[Group]:
    """A group of a broker without a grace."""
    with embedded(reconnect_grace_seconds=0) as broker:
        found = Group(broker)
        yield found
        found.close()


def test_without_a_grace_a_broken_stream_releases_at_once(impatient_group: Group) -> None:
    group = impatient_group
    first = group.member("first")
    first.holds({group.topic: [0, 1, 2, 3]})
    second = group.member("second", session_timeout_ms=60_000)
    first.break_()
    second.holds({group.topic: [0, 1, 2, 3]})


def test_a_second_join_on_a_stream_is_refused(group: Group) -> None:
    member = group.member("one")
    member.assigned()
    member.send_join()
    code, details = member.refused()
    assert code == grpc.StatusCode.INVALID_ARGUMENT
    assert "Join" in details
    group.back(member).heartbeat()  # A mistake breaks the stream, not the membership.
