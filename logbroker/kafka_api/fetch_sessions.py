"""Fetch sessions (KIP-227): the broker remembers which partitions a client fetches. Pure: no I/O, no clock.

The first request of a session is full: it lists all partitions, and so does its answer. Every later one is incremental:
it lists the partitions that are new or have another offset, and those to forget, and its answer has the partitions with
news alone: records, another high watermark or log start offset, or an error. So a client that reads many quiet
partitions sends and gets little.

Client and broker both count the requests of a session; the count is the *epoch* of the session. A request with another
epoch than the expected one is refused, since one side has missed something. The client then begins a new session. A
session forgets a partition only if the client says so, because the client takes a partition that is missing from an
incremental answer for one without news.

The number of sessions, and that of the partitions in all of them, are bounded. A request with a name that no topic can
have gets no session, because such a name may be long. A new session takes the place of one that was not used for
EVICTION_SECONDS or else, as in Kafka, of one that began longer ago than that and has fewer partitions. If there is
none, the client gets no session, and goes on with full requests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from logbroker.broker.topics import MAX_ITEMS
from logbroker.kafka_wire.messages.fetch import FetchRequestPartition, FetchResponsePartitionData
from logbroker.types import is_topic_name

FETCH_SESSION_ID_NOT_FOUND: Final = 70
INVALID_FETCH_SESSION_EPOCH: Final = 71
FETCH_SESSION_TOPIC_ID_ERROR: Final = 106
MAX_SESSIONS: Final = 1000
MAX_PARTITIONS: Final = 100_000
"""Maximum number of partitions in all sessions together. They take 40 MB, or 70 MB if each has a topic of its own with
a name of the maximum length."""
EVICTION_SECONDS: Final = 120.0
NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_INT32: Final = 2**31 - 1


class TopicKey(NamedTuple):
    """A topic as the client names it."""

    name: str
    topic_id: bytes


class PartitionName(NamedTuple):
    """A partition as the client names it."""

    topic: TopicKey
    partition: int


class _Entry:
    """A partition in a session."""

    __slots__ = ("high_watermark", "log_start_offset", "wish")

    def __init__(self, wish: FetchRequestPartition) -> None:
        self.wish = wish
        """The last request of the client for the partition."""
        self.high_watermark = self.log_start_offset = -1
        """The values of the last answer to the client; -1: the next answer must be sent in any case."""

    def has_news(self, answer: FetchResponsePartitionData) -> bool:
        """Return whether the client must get this answer, and remember its offsets."""
        has_news = (
            bool(answer.records)
            or answer.error_code != 0
            or answer.diverging_epoch is not None
            or answer.high_watermark != self.high_watermark
            or answer.log_start_offset != self.log_start_offset
        )
        self.high_watermark = -1 if answer.error_code else answer.high_watermark
        self.log_start_offset = answer.log_start_offset
        return has_news


class _Session:
    """One session. Its partitions are in the order in which they are read next."""

    __slots__ = ("begun_at", "by_id", "entries", "epoch", "session_id", "used_at")

    def __init__(self, session_id: int, now: float, *, by_id: bool) -> None:
        self.session_id = session_id
        self.begun_at = self.used_at = now
        self.by_id = by_id
        """Whether topics are named by their ids."""
        self.epoch = 1
        """Epoch of the next request."""
        self.entries: dict[PartitionName, _Entry] = {}

    def update(self, wishes: Mapping[PartitionName, FetchRequestPartition], forgotten: Iterable[PartitionName]) -> None:
        for name, wish in wishes.items():
            entry = self.entries.get(name)
            if entry is None:
                self.entries[name] = _Entry(wish)
            else:
                entry.wish = wish
        for name in forgotten:
            self.entries.pop(name, None)

    def news(
        self, answers: Mapping[PartitionName, FetchResponsePartitionData]
    ) -> dict[PartitionName, FetchResponsePartitionData]:
        """Return the answers with news. Partitions with records are read last next time, so that all have their
        turn."""
        found = {}
        for name, answer in answers.items():
            entry = self.entries.get(name)
            if entry is None:
                continue
            if entry.has_news(answer):
                found[name] = answer
            if answer.records:
                del self.entries[name]
                self.entries[name] = entry
        return found


class Told(NamedTuple):
    """The parts of a response that depend on the session."""

    error_code: int
    session_id: int
    answers: Mapping[PartitionName, FetchResponsePartitionData]


class Exchange:
    """One request and its answer."""

    __slots__ = ("_by_id", "_epoch", "_is_full", "_session", "_sessions", "wishes")

    def __init__(
        self,
        sessions: FetchSessions,
        wishes: Mapping[PartitionName, FetchRequestPartition],
        session: _Session | None = None,
        *,
        is_full: bool = False,
        by_id: bool = False,
    ) -> None:
        self._sessions = sessions
        self.wishes = wishes
        """The partitions to read, in their order."""
        self._session = session
        self._epoch = session.epoch if session is not None else 0
        self._is_full = is_full
        self._by_id = by_id

    def answered(self, answers: Mapping[PartitionName, FetchResponsePartitionData], now: float) -> Told:
        """Return the response: of the answers for all partitions, those that the client gets."""
        session = self._session
        if session is None:
            session_id = NO_SESSION
            if self._is_full and answers:
                session_id = self._sessions.add(self.wishes, answers, now, by_id=self._by_id)
            return Told(0, session_id, answers)
        if session.epoch != self._epoch:
            # Another request of the session came before this one was answered.
            return Told(INVALID_FETCH_SESSION_EPOCH, session.session_id, {})
        return Told(0, session.session_id, session.news(answers))


class FetchSessions:
    """The fetch sessions of a broker."""

    def __init__(
        self,
        max_sessions: int = MAX_SESSIONS,
        max_partitions: int = MAX_PARTITIONS,
        new_id: Callable[[], int] = lambda: random.randint(1, _MAX_INT32),
    ) -> None:
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._new_id = new_id
        self._sessions: dict[int, _Session] = {}
        """Sessions by their ids, the one that was used longest ago first."""
        self._partitions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions(self) -> int:
        """Number of partitions in all sessions together."""
        return self._partitions

    def begin(
        self,
        session_id: int,
        epoch: int,
        wishes: Mapping[PartitionName, FetchRequestPartition],
        forgotten: Sequence[PartitionName],
        now: float,
        *,
        by_id: bool,
    ) -> Exchange | int:
        """Take a request; return the exchange, or the error code that refuses the request."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            return Exchange(self, wishes, is_full=epoch == INITIAL_EPOCH, by_id=by_id)
        session = self._sessions.get(session_id)
        if session is None:
            return FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != epoch:
            return INVALID_FETCH_SESSION_EPOCH
        if session.by_id != by_id:
            return FETCH_SESSION_TOPIC_ID_ERROR
        if not _can_be_kept(wishes, by_id=by_id):
            self._remove(session_id)
            return FETCH_SESSION_ID_NOT_FOUND
        before = len(session.entries)
        session.update(wishes, forgotten)
        self._partitions += len(session.entries) - before
        if not session.entries:
            self._remove(session_id)
            return Exchange(self, {})
        if len(session.entries) > MAX_ITEMS or self._partitions > self._max_partitions:
            self._remove(session_id)
            return FETCH_SESSION_ID_NOT_FOUND
        session.epoch = 1 if epoch == _MAX_INT32 else epoch + 1
        session.used_at = now
        self._sessions[session_id] = self._sessions.pop(session_id)
        return Exchange(self, {name: entry.wish for name, entry in session.entries.items()}, session)

    def add(
        self,
        wishes: Mapping[PartitionName, FetchRequestPartition],
        answers: Mapping[PartitionName, FetchResponsePartitionData],
        now: float,
        *,
        by_id: bool,
    ) -> int:
        """Begin a session; its client gets all these answers. Return its id, or NO_SESSION if there is no room."""
        if not _can_be_kept(wishes, by_id=by_id):
            return NO_SESSION
        while len(self._sessions) >= self._max_sessions or self._partitions + len(wishes) > self._max_partitions:
            evicted = self._to_evict(len(wishes), now)
            if evicted is None:
                return NO_SESSION
            self._remove(evicted.session_id)
        session_id = self._new_id()
        while session_id in self._sessions:
            session_id = self._new_id()
        session = self._sessions[session_id] = _Session(session_id, now, by_id=by_id)
        session.update(wishes, ())
        session.news(answers)
        self._partitions += len(session.entries)
        return session_id

    def _to_evict(self, size: int, now: float) -> _Session | None:
        """Return the session that gives way to a new one with `size` partitions; None: no session does."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or now - oldest.used_at > EVICTION_SECONDS:
            return oldest
        settled = (each for each in self._sessions.values() if now - each.begun_at > EVICTION_SECONDS)
        smallest = min(settled, key=lambda each: len(each.entries), default=None)
        return smallest if smallest is not None and len(smallest.entries) < size else None

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= len(session.entries)


def _can_be_kept(wishes: Iterable[PartitionName], *, by_id: bool) -> bool:
    return by_id or all(is_topic_name(name.topic.name) for name in wishes)
