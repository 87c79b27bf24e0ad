"""The rules of queues with priorities, beside all others."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from logbroker.queues.model.settings import Ordering, Priority, PriorityRank
from tests.queues.session_stateful import SessionMachine


class RankedMachine(SessionMachine):
    """Queues that begin with priorities, and may lose and get them."""

    orderings = (Ordering.NONE, Ordering.KEY, Ordering.KEY)
    priorities = (Priority.STRICT, Priority.AGEING)

    @precondition(lambda self: self.world.altered is None)
    @rule(priority=st.sampled_from([Priority.NONE, *priorities]), rank=st.sampled_from(PriorityRank))
    def alter_ranks(self, priority: Priority, rank: PriorityRank) -> None:
        """At once, or as soon as what is in flight is settled. What is parked stays so."""
        world = self.world
        world.expire()
        world.queue.tick(world.now)
        world.park_heads()
        settings = msgspec.structs.replace(world.settings, priority=priority, priority_rank=rank)
        world.queue.alter(settings)
        if world.queue.settings is settings and not world.queue.rescan_due:
            world.settings = settings
            world.commit()  # What was not, a restart would forget.
        else:
            world.altered, world.rescanned = settings, True
