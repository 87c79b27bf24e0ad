"""The rules of sessions and rewinds, beside all others."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.stateful import rule

from logbroker.queues.model.messages import SessionWrite
from tests.queues.stateful import KEYS, WORKERS, QueueMachine

HOW = st.sampled_from(["ack", "nack", "release", "extend"])


class SessionMachine(QueueMachine):
    """Apart, so that what is no matter of sessions is found as soon as without them."""

    # --- sessions ----------------------------------------------------------------------------------------------------

    @rule(worker=WORKERS, key=st.none() | KEYS, prefetch=st.integers(1, 4), then_take=st.booleans())
    def open_session(self, worker: str, key: bytes | None, prefetch: int, then_take: bool) -> None:
        self.world.open_session(worker, key, prefetch)
        if then_take:
            self.world.take_sessions()

    @rule()
    def take_sessions(self) -> None:
        self.world.take_sessions()

    @rule(worker=WORKERS, keys=st.lists(KEYS, max_size=7), prefetch=st.integers(1, 4), how=HOW, pick=st.integers(0, 3))
    def work_in_session(self, worker: str, keys: list[bytes | None], prefetch: int, how: str, pick: int) -> None:
        """Run a sequence that the rules above and below seldom produce."""
        world = self.world
        for key in keys:
            world.append(key, 0, 0)
        self.scan_all()
        world.open_session(worker, None, prefetch)
        world.take_sessions()
        for key, hold in list(world.holds.items()):
            if hold.worker == worker and hold.receipts:
                receipt = hold.receipts[pick % len(hold.receipts)]
                write = SessionWrite(key, hold.token, b"state %d" % receipt) if pick else None
                world.settle(worker, how, receipt, receipt, 0, write)

    @rule(how=st.sampled_from(["renew", "renew", "close"]), pick=st.integers(0, 20))
    def use_token(self, how: str, pick: int) -> None:
        """Rather that of an open session, at times any that was ever given."""
        open_tokens = [hold.token for hold in self.world.holds.values()]
        known = [*open_tokens, *open_tokens, *sorted(self.world.tokens, reverse=True)[:4]]
        if known:
            self.world.with_token(how, known[pick % len(known)])

    @rule(worker=WORKERS, pick=st.integers(0, 20), length=st.integers(1, 3), state=st.sampled_from([b"", b"1", b"2"]))
    def write_state(self, worker: str, pick: int, length: int, state: bytes) -> None:
        """With acks of what the session has, or what it once had."""
        world = self.world
        tokens = sorted(world.tokens, reverse=True)[:3]
        if tokens:
            token = tokens[pick % len(tokens)]
            write = SessionWrite(world.tokens[token][1], token, state)
            known = [receipt for receipt, holder in world.issued.items() if holder == worker][-4:] or [1]
            first = known[pick % len(known)]
            world.settle(worker, "ack", first, first + length - 1, None, write)

    @rule(pick=st.integers(0, 3))
    def reclaim_session(self, pick: int) -> None:
        world = self.world
        late = [token for token, (_, key) in world.tokens.items() if key in world.unclaimed]
        known = [*world.unclaimed.values(), *late[-4:], *sorted(world.tokens)[-2:]]
        if known:
            world.reclaim_session(known[pick % len(known)])

    @rule()
    def end_reclaiming(self) -> None:
        self.world.queue.sessions.forget_unclaimed()
        self.world.unclaimed.clear()

    @rule(
        partition=st.integers(0, 3),
        records=st.integers(0, 12),
        include_parked=st.booleans(),
        drop_standing=st.booleans(),
    )
    def rewind(self, partition: int, records: int, include_parked: bool, drop_standing: bool) -> None:
        self.world.rewind(partition, records, include_parked=include_parked, drop_standing=drop_standing)
