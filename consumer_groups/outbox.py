"""The outputs of one step of a group's state machine (`group`), gathered until its coordinator takes them."""

from __future__ import annotations

from collections.abc import Mapping

from logbroker.consumer_groups.member import Member
from logbroker.consumer_groups.messages import GroupOutputs, Message
from logbroker.consumer_groups.rows import HEADER_ROW, GroupRow, encode_row, member_key
from logbroker.engine import StateEvent


class Outbox:
    """Rows to write, and messages to send after that, in order."""

    def __init__(self) -> None:
        self.header_changed = False
        self._changed: dict[str, None] = {}
        """Ids of members whose rows are to be written, in order."""
        self._messages: list[tuple[str, Message]] = []

    def touch(self, member: Member) -> None:
        """Write the row of a member, as it is at the next `take`."""
        self._changed[member.member_id] = None

    def send(self, member: Member, message: Message) -> None:
        self._messages.append((member.member_id, message))

    def drop_messages(self, member_id: str) -> None:
        """Drop the messages for a member's earlier stream, which must not reach its new one."""
        if any(to == member_id for to, _ in self._messages):
            self._messages = [message for message in self._messages if message[0] != member_id]

    def take(self, header: GroupRow, members: Mapping[str, Member]) -> GroupOutputs:
        """Return everything gathered, and start empty again."""
        events = [StateEvent(HEADER_ROW, encode_row(header))] if self.header_changed else []
        for member_id in self._changed:
            member = members.get(member_id)
            events.append(StateEvent(member_key(member_id), None if member is None else encode_row(member.to_row())))
        outputs = GroupOutputs(events, self._messages)
        self.header_changed, self._changed, self._messages = False, {}, []
        return outputs
