"""Planted bugs: small faults put into a running broker or member, to prove that the storm's checker finds such faults.

Each function replaces something in the modules of this process, which then goes on as ever. None of this is in the
product. `python -m tests.groups.group_plants NAME serve ...` is a broker with one of them.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

from tests.client.convoy import convoy_plants


def _replace(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
    setattr(owner, name, make(getattr(owner, name)))


# --- in the broker ---------------------------------------------------------------------------------------------------


def given_before_released() -> None:
    """Assign what a member shall hold, whoever holds it still."""
    from logbroker.consumer_groups.group import Group

    def make(assign: Any) -> Any:
        def at_once(self: Any, member: Any, now: float) -> None:
            for partition in self.target(member):
                if self._holders.get(partition) is not member:
                    self._holders.pop(partition, None)
            assign(self, member, now)

        return at_once

    _replace(Group, "_assign", make)


def old_epochs_accepted() -> None:
    """Accept the commits of every member, whatever its epoch and whatever it holds."""
    from logbroker.consumer_groups.group import Group
    from logbroker.consumer_groups.offsets import OffsetTable

    _replace(Group, "committable_partitions", lambda _: lambda self, member_id, _epoch: self.member(member_id).taken)
    _replace(OffsetTable, "stage", lambda stage: lambda self, commit, _floors, *rest: stage(self, commit, None, *rest))


def assignments_lost_on_restart() -> None:
    """Load groups without their members."""
    from logbroker.consumer_groups import group

    _replace(group, "decode_group", lambda decode: lambda rows: (decode(rows)[0], {}))


def offsets_ahead_of_a_cut_log() -> None:
    """Load committed offsets as they are stored, wherever the log ends."""
    from logbroker.consumer_groups.offsets import OffsetTable

    _replace(OffsetTable, "clamped", lambda _: lambda self, _end_offset: [])


# --- in a member -----------------------------------------------------------------------------------------------------


def committed_while_in_hand() -> None:
    """Count a record as finished as soon as the program is given it."""
    from logbroker.client.consumer.cursor import Cursor

    def make(finished: Any) -> Any:
        def too_far(self: Any, assigned: Any) -> int:
            last = self.last
            if last is not None and (last.topic, last.partition) == assigned.partition:
                return int(last.offset) + 1
            return int(finished(self, assigned))

        return too_far

    _replace(Cursor, "finished", make)


def frozen_member_reads_on() -> None:
    """Trust that all is as it was until something else is heard, however long nothing at all was heard."""
    from logbroker.client.consumer.membership import Membership

    def make(joined: Any) -> Any:
        def for_ever(self: Any, **fields: Any) -> None:
            joined(self, **fields)
            self.lease_seconds = math.inf
            self._update()

        return for_ever

    _replace(Membership, "joined", make)


def convoy_commits_ahead() -> None:
    """Let a convoy count a record as done as soon as it is started."""
    convoy_plants.committed_while_it_runs(setattr)


def convoy_text_cut_off() -> None:
    """Let a convoy write down no more than some of what is done out of order."""
    convoy_plants.text_cut_off(setattr)


def convoy_forgets_at_revocation() -> None:
    """Let a convoy run on with the records of a partition that goes."""
    from logbroker.client.convoy.convoy_core import ConvoyCore

    _replace(ConvoyCore, "hold", lambda _: lambda self, partitions: [])
    _replace(ConvoyCore, "forget", lambda _: lambda self, partition: None)


BROKER_PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (given_before_released, old_epochs_accepted, assignments_lost_on_restart)
}
RESTART_PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (offsets_ahead_of_a_cut_log,)
}
"""Those that no storm is needed for."""
CLIENT_PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (committed_while_in_hand, frozen_member_reads_on)
}
CONVOY_PLANTS: Final[Mapping[str, Callable[[], None]]] = {
    plant.__name__: plant for plant in (convoy_commits_ahead, convoy_text_cut_off, convoy_forgets_at_revocation)
}
"""Those of members that are convoys."""


def main() -> None:
    """Run the command `logbroker` with the bug that the first argument names."""
    from logbroker.cli.main import main as logbroker

    {**BROKER_PLANTS, **RESTART_PLANTS}[sys.argv.pop(1)]()
    logbroker()


if __name__ == "__main__":
    main()
