"""Leveling of loads when subscriptions differ: the hard case of the sticky assignor."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, MutableSequence, Sequence
from typing import Final

from logbroker.types import PartitionKey, TopicId

_MAX_PASSES: Final = 10
"""Maximum number of passes. A pass narrows the gaps. It costs O(subscriptions + partitions * log subscribers). After
this many passes, the remaining gaps are not worth another pass."""


def level(target: Mapping[str, MutableSequence[PartitionKey]], topics: Sequence[tuple[TopicId, Sequence[str]]]) -> None:
    """Move partitions, in place, to subscribers of the same topic whose load is lower by two or more.

    `topics` has the id of each topic, with its subscribers: their keys in `target`. Within a topic, the most loaded
    subscriber gives partitions to the least loaded subscriber, its last partition first. A level target stays as it is.
    """
    for _ in range(_MAX_PASSES):
        if not _level_once(target, topics):
            return


def _level_once(
    target: Mapping[str, MutableSequence[PartitionKey]], topics: Sequence[tuple[TopicId, Sequence[str]]]
) -> bool:
    loads = {key: len(held) for key, held in target.items()}
    held_of_topic: dict[TopicId, dict[str, list[PartitionKey]]] = {}
    for key, held in target.items():
        for partition in held:
            held_of_topic.setdefault(partition.topic_id, {}).setdefault(key, []).append(partition)
    moves: dict[PartitionKey, tuple[str, str]] = {}
    for topic_id, keys in topics:
        holders = held_of_topic.get(topic_id, {})
        givers = [(-loads[key], key) for key in holders]
        takers = [(loads[key], key) for key in keys]
        heapq.heapify(givers)
        heapq.heapify(takers)
        while givers and -givers[0][0] - takers[0][0] >= 2:
            giver, taker = givers[0][1], takers[0][1]
            if -givers[0][0] != loads[giver]:
                heapq.heapreplace(givers, (-loads[giver], giver))  # it was also a taker: look again
                continue
            if takers[0][0] != loads[taker]:
                heapq.heapreplace(takers, (loads[taker], taker))
                continue
            moves[holders[giver].pop()] = (giver, taker)
            loads[giver] -= 1
            loads[taker] += 1
            if holders[giver]:
                heapq.heapreplace(givers, (-loads[giver], giver))
            else:
                heapq.heappop(givers)
            heapq.heapreplace(takers, (loads[taker], taker))
    for partition, (_, taker) in moves.items():
        target[taker].append(partition)
    for giver in {giver for giver, _ in moves.values()}:
        kept = [partition for partition in target[giver] if moves.get(partition, (None,))[0] != giver]
        target[giver][:] = kept
    return bool(moves)
