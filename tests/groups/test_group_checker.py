"""The checker finds each anomaly in a small bad history, and nothing in good ones."""

from __future__ import annotations

import enum
from pathlib import Path

import pytest

from logbroker.types import TopicPartition
from tests.crash.checker import FinalRead, Log, Outcome, Send
from tests.crash.checker import Kind as LogKind
from tests.crash.checker import check as check_log
from tests.groups.group_checker import Kind, check, polls
from tests.groups.group_history import (
    Assigned,
    BrokerBack,
    BrokerKilled,
    CommitBegun,
    CommitEnded,
    Delivered,
    Event,
    Frozen,
    Handled,
    LookBegun,
    LookEnded,
    Lost,
    Outage,
    Revoked,
    Stalled,
    read_histories,
)
from tests.history import HistoryFile

P = TopicPartition("orders", 0)


class Story:
    """Events one after the other, a second apart: `a` and `b` are members, with one partition between them."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._commits = 0

    def _at(self) -> float:
        return float(len(self.events))

    def assigned(self, who: str, offset: int = 0) -> Story:
        self.events.append(Assigned(process=who, at=self._at(), positions=[(P, offset)]))
        return self

    def revoked(self, who: str) -> Story:
        self.events.append(Revoked(process=who, at=self._at(), partitions=[P]))
        return self

    def lost(self, who: str) -> Story:
        self.events.append(Lost(process=who, at=self._at(), partitions=[P]))
        return self

    def delivered(self, who: str, *offsets: int) -> Story:
        records = [(P, offset, b"%d" % offset) for offset in offsets]
        self.events.append(Delivered(process=who, at=self._at(), records=records))
        return self

    def handled(self, who: str, *offsets: int) -> Story:
        self.events.append(Handled(process=who, at=self._at(), records=[(P, offset) for offset in offsets]))
        return self

    def reads(self, who: str, *offsets: int) -> Story:
        return self.delivered(who, *offsets).handled(who, *offsets)

    def commits(
        self,
        who: str,
        offset: int,
        *done: int,
        refused: bool = False,
        answered: bool = True,
        stale: bool = False,
    ) -> Story:
        self._commits += 1
        number = self._commits
        self.events.append(
            CommitBegun(
                process=who,
                at=self._at(),
                number=number,
                offsets=[(P, offset)],
                done=[(P, [(each, each + 1) for each in done])],
                stale=stale,
            )
        )
        reasons = [(P, "STALE_MEMBER_EPOCH")] if refused else []
        self.events.append(CommitEnded(process=who, at=self._at(), number=number, answered=answered, refused=reasons))
        return self

    def frozen(self, who: str) -> Story:
        self.events.append(Frozen(process=who, at=self._at()))
        return self

    def stalled(self, who: str, seconds: float) -> Story:
        self.events.append(Stalled(process=who, at=self._at(), seconds=seconds))
        return self

    def broker_killed(self) -> Story:
        self.events.append(BrokerKilled(process="storm", at=self._at()))
        return self

    def broker_back(self) -> Story:
        self.events.append(BrokerBack(process="storm", at=self._at()))
        return self

    def sees(self, offset: int) -> Story:
        self.events.append(LookBegun(process="look", at=self._at()))
        self.events.append(LookEnded(process="look", at=self._at(), offsets=[(P, offset)]))
        return self

    def outage(self, seconds: float) -> Story:
        self.events.append(Outage(process="storm", at=self._at(), since=self._at() - seconds))
        return self


GOOD = {
    "the start of a partition of which the program was not told": Story().commits("a", 0),
    "nothing happens": Story(),
    "one member reads and commits": Story().assigned("a").reads("a", 0, 1).commits("a", 2).sees(2),
    "a partition is handed over": Story().assigned("a").reads("a", 0).revoked("a").commits("a", 1).assigned("b", 1),
    "a dead member's records come again": Story().assigned("a").reads("a", 0, 1).commits("a", 1).assigned("b", 1),
    "a commit without an answer took effect": Story()
    .assigned("a")
    .reads("a", 0)
    .commits("a", 1, answered=False)
    .assigned("b", 1)
    .sees(1),
    "a commit without an answer took none": Story()
    .assigned("a")
    .reads("a", 0)
    .commits("a", 1, answered=False)
    .assigned("b", 0),
    "a fenced member learns it late": Story().assigned("a").reads("a", 0).frozen("a").assigned("b").lost("a"),
    "a fenced member is told of a revocation": Story().assigned("a").frozen("a").assigned("b").revoked("a"),
    "one record was in hand": Story()
    .assigned("a")
    .delivered("a", 0)
    .frozen("a")
    .assigned("b")
    .handled("a", 0)
    .lost("a"),
    "it stood still after it was told": Story().stalled("a", 2.5).assigned("a").assigned("b").revoked("a"),
    "a frozen member goes on": Story().assigned("a").reads("a", 0).frozen("a").reads("a", 1).reads("a", 2),
    "a zombie is refused": Story()
    .assigned("a")
    .reads("a", 0)
    .frozen("a")
    .assigned("b")
    .lost("a")
    .commits("a", 1, stale=True, refused=True),
    "a member keeps what it was told to give": Story().assigned("a").reads("a", 0).revoked("a").assigned("a", 1),
    "a member comes back to a partition": Story()
    .assigned("a")
    .revoked("a")
    .assigned("b")
    .reads("b", 0)
    .revoked("b")
    .commits("b", 1)
    .assigned("a", 1),
    "a member does not come back in time": Story()
    .assigned("a")
    .reads("a", 0)
    .broker_killed()
    .broker_back()
    .assigned("b")
    .revoked("a"),
    "an assignment of the killed broker": Story()
    .broker_killed()
    .assigned("a")
    .broker_back()
    .assigned("b")
    .revoked("a"),
    "nothing moves in an outage": Story().assigned("a").reads("a", 0).outage(1),
}
BAD = {
    "it is given before it is released": (
        Kind.TWO_OWNERS,
        Story().assigned("a").reads("a", 0).assigned("b").revoked("a"),
    ),
    "a member reads on after it was fenced": (
        Kind.TWO_OWNERS,
        Story().assigned("a").frozen("a").assigned("b").delivered("a", 0).lost("a"),
    ),
    "a member is told of what it lost while it was frozen": (
        Kind.TWO_OWNERS,
        Story().frozen("a").assigned("b").assigned("a").lost("a").delivered("b", 0),
    ),
    "it stood still before it was told": (
        Kind.TWO_OWNERS,
        Story().stalled("a", 0.5).assigned("a").assigned("b").revoked("a"),
    ),
    "a member reads on that did not come back": (
        Kind.TWO_OWNERS,
        Story().assigned("a").broker_killed().broker_back().assigned("b").delivered("a", 0),
    ),
    "it is given early by the next broker": (
        Kind.TWO_OWNERS,
        Story().broker_killed().broker_back().assigned("a").assigned("b").revoked("a"),
    ),
    "both read": (Kind.TWO_OWNERS, Story().assigned("a").assigned("b").delivered("a", 0).delivered("b", 0)),
    "a long span hides behind a short one": (
        Kind.TWO_OWNERS,
        Story().assigned("a").assigned("b").revoked("b").assigned("c").delivered("a", 0),
    ),
    "it reads what was revoked": (Kind.NOT_HELD, Story().assigned("a").revoked("a").delivered("a", 0)),
    "it reads what was never its own": (Kind.NOT_HELD, Story().delivered("a", 0)),
    "a new owner begins too early": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 0).commits("a", 1).assigned("b", 0),
    ),
    "a new owner begins too late": (Kind.WRONG_START, Story().assigned("a").reads("a", 0).assigned("b", 1)),
    "it begins again where it stopped, though it was lost": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 0).lost("a").assigned("a", 1),
    ),
    "a woken member begins where it was": (
        Kind.WRONG_START,
        Story().frozen("a").assigned("b").reads("b", 0).commits("b", 1).revoked("b").assigned("a"),
    ),
    "the record in hand is committed": (Kind.COMMIT_AHEAD, Story().assigned("a").delivered("a", 0).commits("a", 1)),
    "what it does not hold is committed": (Kind.COMMIT_AHEAD, Story().commits("a", 1, refused=True)),
    "a zombie commits": (
        Kind.STOLEN_COMMIT,
        Story().assigned("a").reads("a", 0).frozen("a").assigned("b").commits("a", 1),
    ),
    "a zombie commits in its next life": (
        Kind.STOLEN_COMMIT,
        Story().assigned("a").reads("a", 0).frozen("a").lost("a").assigned("a").commits("a", 1, stale=True),
    ),
    "a commit is forgotten": (Kind.WENT_BACK, Story().assigned("a").reads("a", 0, 1).commits("a", 2).sees(1)),
    "what was seen goes back": (Kind.WENT_BACK, Story().sees(2).sees(1)),
    "a record is skipped": (Kind.UNHANDLED, Story().assigned("a").reads("a", 0, 2)),
    "a record is never finished": (Kind.UNHANDLED, Story().assigned("a").delivered("a", 0)),
    "an outage moves a partition": (Kind.MOVED, Story().assigned("a").lost("a").outage(1.5)),
}


def end_of(story: Story) -> int:
    """After the last record that anybody saw, unless a good history says that it need not be handled."""
    return max((r[1] + 1 for e in story.events if isinstance(e, Delivered) for r in e.records), default=0)


@pytest.mark.parametrize("name", GOOD)
def test_a_good_history_passes(name: str) -> None:
    assert check(GOOD[name].events, {P: end_of(GOOD[name])}) == []


@pytest.mark.parametrize("name", BAD)
def test_an_anomaly_is_found(name: str) -> None:
    kind, story = BAD[name]
    ends = {P: end_of(story)} if kind is Kind.UNHANDLED else {}
    assert {anomaly.kind for anomaly in check(story.events, ends)} == {kind}


def test_every_kind_is_shown() -> None:
    assert {kind for kind, _ in [*BAD.values(), *BAD_OF_CONVOYS.values()]} == set(Kind)


def test_what_was_delivered_is_judged_as_the_crash_tests_do() -> None:
    log = Log(*P)
    sends = [Send("p", b"%d" % offset, outcome=Outcome.OK, log=log, offset=offset) for offset in range(3)]
    final = {log: FinalRead(0, [(offset, b"%d" % offset) for offset in range(3)])}

    def kinds(story: Story) -> list[enum.Enum]:
        return [anomaly.kind for anomaly in check_log([*sends, *polls(story.events)], final)]

    assert kinds(Story().assigned("a").delivered("a", 0, 1).assigned("b", 1).delivered("b", 1, 2)) == []
    assert kinds(Story().assigned("a").delivered("a", 0, 2)) == [LogKind.SKIP]
    assert kinds(Story().assigned("a").delivered("a", 1)) == [LogKind.SKIP]
    assert kinds(Story().assigned("a").delivered("a", 0, 0)) == [LogKind.BACK]


def test_histories_are_read_back_in_the_order_of_time(tmp_path: Path) -> None:
    story = Story().assigned("a").reads("a", 0).commits("a", 1).frozen("a").sees(1).lost("a").outage(1)
    story.stalled("a", 1)
    story.broker_killed().broker_back()
    files = {who: HistoryFile(tmp_path / who, who) for who in ("one", "two")}
    for number, event in enumerate(story.events):
        fields = {name: getattr(event, name) for name in event.__struct_fields__}
        files["one" if number % 2 else "two"].write(type(event), **fields)
    assert read_histories(tmp_path.iterdir()) == story.events


# --- members that are convoys ----------------------------------------------------------------------------------------

KEYS = {(P, offset): offset % 2 for offset in range(8)}
GOOD_OF_CONVOYS = {
    "keys beside each other": Story()
    .assigned("a")
    .delivered("a", 0, 1)
    .handled("a", 1)
    .delivered("a", 3)
    .handled("a", 0),
    "what is done out of order is said": Story()
    .assigned("a")
    .reads("a", 1)
    .reads("a", 3)
    .commits("a", 0, 1, 3)
    .sees(0),
    "another goes on": Story()
    .assigned("a")
    .reads("a", 1)
    .reads("a", 3)
    .commits("a", 0, 1, 3)
    .assigned("b")
    .reads("b", 0)
    .reads("b", 2)
    .commits("b", 4),
    "what was not committed comes again": Story().assigned("a").reads("a", 0, 1).assigned("b").reads("b", 0, 1),
    "it keeps what it was told to give, and has done more than it was given last": Story()
    .assigned("a")
    .reads("a", 1)
    .reads("a", 3)
    .reads("a", 0)
    .reads("a", 2)
    .revoked("a")
    .broker_killed()
    .assigned("a", 4)
    .commits("a", 4),
    "it keeps what it was told to give, and goes on with what it was interrupted at": Story()
    .assigned("a")
    .reads("a", 0, 1)
    .delivered("a", 2)
    .reads("a", 3)
    .revoked("a")
    .assigned("a", 2)
    .reads("a", 2),
    "a failed record comes again": Story().assigned("a").delivered("a", 0).delivered("a", 0).handled("a", 0),
}
BAD_OF_CONVOYS = {
    "it keeps what it was told to give, and passes over what it has not done": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 0).delivered("a", 1).reads("a", 2).revoked("a").assigned("a", 3),
    ),
    "it keeps what it was told to give, and begins below what it has committed": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 0, 1).commits("a", 2).revoked("a").assigned("a", 1),
    ),
    "another begins where it stopped": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 1).reads("a", 0).revoked("a").assigned("b", 2),
    ),
    "it begins again where it stopped, though another had it": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 1).reads("a", 0).revoked("a").assigned("b").revoked("b").assigned("a", 2),
    ),
    "it begins again where it stopped, though it was lost": (
        Kind.WRONG_START,
        Story().assigned("a").reads("a", 1).reads("a", 0).revoked("a").lost("a").assigned("a", 2),
    ),
    "a key out of order": (Kind.OUT_OF_ORDER, Story().assigned("a").reads("a", 2)),
    "a successor before its turn": (Kind.OUT_OF_ORDER, Story().assigned("a").delivered("a", 0, 2)),
    "a commit ahead of what runs": (Kind.COMMIT_AHEAD, Story().assigned("a").delivered("a", 0).commits("a", 1)),
    "a text ahead of what runs": (Kind.COMMIT_AHEAD, Story().assigned("a").delivered("a", 1).commits("a", 0, 1)),
    "a text that is cut off": (Kind.FORGOTTEN, Story().assigned("a").reads("a", 1).reads("a", 3).commits("a", 0, 1)),
    "a record below the commit comes again": (
        Kind.REPEATED,
        Story().assigned("a").reads("a", 0).commits("a", 1).assigned("b", 1).delivered("b", 0),
    ),
    "a record of the text comes again": (
        Kind.REPEATED,
        Story().assigned("a").reads("a", 1).commits("a", 0, 1).assigned("b").delivered("b", 1),
    ),
}


@pytest.mark.parametrize("name", GOOD_OF_CONVOYS)
def test_nothing_is_found_in_good_histories_of_convoys(name: str) -> None:
    # The first member was killed wherever another one begins.
    assert check(GOOD_OF_CONVOYS[name].events, {}, KEYS) == []


@pytest.mark.parametrize("name", BAD_OF_CONVOYS)
def test_what_a_convoy_does_wrong_is_found(name: str) -> None:
    kind, story = BAD_OF_CONVOYS[name]
    assert kind in {anomaly.kind for anomaly in check(story.events, {}, KEYS)}
