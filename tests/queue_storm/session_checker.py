"""Find what the history of a queue group's workers proves wrong about its sessions. Pure, as `queue_checker` is.

Fencing tokens grow from holder to holder of a lane. So whoever saw that a session was opened knows that all with
smaller tokens were over: what their holders say afterwards must be refused. The state that a holder finds is the last
one that was written and answered, or one after it whose answer nobody got. Of two states that one holder wrote at the
same time, either may be the last. The state of a sub-lane ends with its split, so it may also be empty.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from tests.anomalies import Anomaly
from tests.queue_storm.queue_checker import Kind
from tests.queue_storm.queue_history import (
    Event,
    SessionBegun,
    SessionEnded,
    SessionOpened,
    SettleBegun,
    SettleEnded,
    Taken,
)

_SUB_LANE: Final = "#"
"""Part of the names of sub-lanes, and of no key of a storm."""


class _Word(msgspec.Struct, eq=False):
    """A holder's request under its token: a state, or only a settlement."""

    token: int
    begun_at: float
    state: str | None
    accepted: bool = False
    refused: bool = False
    ended_at: float = math.inf


def check(history: Iterable[Event]) -> list[Anomaly]:
    """Return all that is wrong with the sessions in a history of events in the order of their times."""
    opened, words = _read(history)
    anomalies: list[Anomaly] = []
    for key, sessions in opened.items():
        anomalies += _tokens(key, sessions)
        anomalies += _stale(key, sessions, words.get(key, []))
        anomalies += _states(key, sessions, words.get(key, []))
    return anomalies


def _read(history: Iterable[Event]) -> tuple[dict[str, list[SessionOpened]], dict[str, list[_Word]]]:
    opened: dict[str, list[SessionOpened]] = defaultdict(list)
    words: dict[str, list[_Word]] = defaultdict(list)
    begun: dict[tuple[str, str, int], _Word] = {}
    sessions: dict[int, tuple[str, int]] = {}
    for event in history:
        match event:
            case SessionOpened():
                opened[event.key].append(event)
            case Taken():
                sessions.update((each.receipt, (each.key, each.token)) for each in event.deliveries if each.token)
            case SessionBegun():
                word = begun[event.process, "session", event.number] = _Word(event.token, event.at, event.state)
                words[event.key].append(word)
            case SettleBegun():
                for receipt in event.receipts:
                    if receipt in sessions:
                        key, token = sessions[receipt]
                        word = begun[event.process, "settle", event.number] = _Word(token, event.at, None)
                        words[key].append(word)
            case SessionEnded():
                word = begun[event.process, "session", event.number]
                word.refused = event.answered and bool(event.refused)
                word.accepted = event.answered and not event.refused
                word.ended_at = event.at
            case SettleEnded():
                settled = begun.get((event.process, "settle", event.number))
                if settled is not None:
                    settled.refused = bool(event.refused)
                    settled.accepted = event.answered and not event.refused
    return opened, words


def _tokens(key: str, sessions: list[SessionOpened]) -> Iterator[Anomaly]:
    holders: dict[int, SessionOpened] = {}
    for session in sessions:
        other = holders.setdefault(session.token, session)
        if other is not session:
            yield Anomaly(Kind.TOKEN_TWICE, f"{session.token} of {key!r}: {other.process} and {session.process}")


def _stale(key: str, sessions: list[SessionOpened], words: list[_Word]) -> Iterator[Anomaly]:
    for word in words:
        if word.accepted:
            newer = next((each for each in sessions if each.token > word.token and each.at < word.begun_at), None)
            if newer is not None:
                text = f"token {word.token} of {key!r}, after {newer.process} had {newer.token}"
                yield Anomaly(Kind.STALE_TOKEN, text)


def _states(key: str, sessions: list[SessionOpened], words: list[_Word]) -> Iterator[Anomaly]:
    written = [word for word in words if word.state is not None and not word.refused]
    for session in sessions:
        before = [word for word in written if word.token < session.token]
        accepted = [word for word in before if word.accepted]
        possible = {word.state for word in before if not any(_follows(later, word) for later in accepted)}
        if not accepted or _SUB_LANE in key:
            possible.add("")
        if session.state not in possible:
            text = f"{session.process} found {session.state!r} for {key!r} under token {session.token}, not {possible}"
            yield Anomaly(Kind.STATE_LOST, text)


def _follows(later: _Word, word: _Word) -> bool:
    """Return whether a state was certainly written after another one."""
    return later.token > word.token or (later.token == word.token and later.begun_at > word.ended_at)
