"""The choice of partition and consumer counts, and of splits, by the model of `capacity` and `queueing`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from logbroker.tools.experiments import capacity, queueing
from logbroker.tools.experiments.capacity import QUEUE, Service
from logbroker.tools.experiments.keys import partition_shares_of, sub_lane_shares

CANDIDATES: Final = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1000)
"""The partition counts that `plan` tries."""
SUB_LANES: Final = (2, 4, 8, 16, 32, 64)
_MOST_SPLIT_KEYS: Final = 8
"""Maximum number of keys that an operator would split."""
_MAX_CONSUMERS: Final = 4096
_PLACEMENTS: Final = 15
"""Number of sets of key names over which the median is taken, because it depends on chance which keys share a
partition."""
_PLACED_KEYS: Final = 30_000
"""The approximate number of keys in all placements together."""
_NEAR: Final = 1.1
"""If no partition count meets the target, the utilisation of the busiest consumer may be this many times the lowest
one."""


class Demand(msgspec.Struct, frozen=True, kw_only=True):
    """The load to plan for, and the consumers that share it."""

    mode: str
    rate: float
    """Records/s."""
    shares: list[float]
    """The share of each key, the hottest first."""
    consumers: int | None
    """Number of consumers, or None for as many as are needed."""
    target: float
    """The share of its capacity that the busiest consumer or key may use, 0 to 1."""


class Option(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one partition count."""

    partitions: int
    consumers: int
    records_per_second: float
    """The rate that the option keeps up with."""
    utilisation: float
    """The share of all consumers' time in which they are at work. Above 1, they do not keep up."""
    busiest_utilisation: float
    """The share of its capacity that the busiest consumer has to use, its pauses between records included. In a queue
    group, it is the utilisation of the workers or, if higher, of the hottest key."""
    wait_ms: float | None
    """The mean wait before the busiest consumer begins with a record, or None if it does not keep up."""


class CapacityPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The chosen option, and all options."""

    chosen: Option
    fits: bool
    """Whether the choice meets the target."""
    options: list[Option]
    remedy: Option | None = None
    """The option with more consumers that meets the target, if the given number of consumers does not. None also if
    there is no such option."""


class SplitPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A queue group whose hottest keys are split."""

    keys: int
    """Number of keys to split: the hottest ones."""
    into: int
    """Number of sub-lanes of each of these keys."""
    option: Option
    """The result, with as many workers as it needs to meet the target."""


def plan(demand: Demand, service: Service, candidates: Sequence[int] | None = None) -> CapacityPlan:
    """Return the smallest partition count that meets the target or, if none does, the smallest after which more
    partitions gain next to nothing. `candidates`: the counts in question; None: `CANDIDATES` and the given number of
    consumers."""
    is_queue = demand.mode == QUEUE
    counts = sorted({*CANDIDATES, demand.consumers or 1}) if candidates is None else candidates
    placed = {} if is_queue else _placed(demand.shares, counts)

    def planned(demand: Demand) -> CapacityPlan:
        return _queue_plan(demand, service) if is_queue else _group_plan(demand, service, placed)

    found = planned(demand)
    if found.fits or demand.consumers is None:
        return found
    more = planned(msgspec.structs.replace(demand, consumers=None))
    return msgspec.structs.replace(found, remedy=more.chosen) if more.fits else found


def _queue_plan(demand: Demand, service: Service) -> CapacityPlan:
    chosen = _queue_option(demand, service, demand.shares[0])
    return CapacityPlan(chosen=chosen, fits=chosen.busiest_utilisation <= demand.target, options=[chosen])


def _group_plan(demand: Demand, service: Service, placed: Mapping[int, Sequence[list[float]]]) -> CapacityPlan:
    options = [
        _group_option(demand, service, placements, partitions, demand.consumers or partitions)
        for partitions, placements in placed.items()
    ]
    least = min(option.busiest_utilisation for option in options)
    limit = demand.target if least <= demand.target else _NEAR * least
    chosen = next(option for option in options if option.busiest_utilisation <= limit)
    if demand.consumers is None:
        chosen = _with_fewest_consumers(demand, service, placed[chosen.partitions], chosen, limit)
    return CapacityPlan(chosen=chosen, fits=least <= demand.target, options=options)


def _with_fewest_consumers(
    demand: Demand, service: Service, placements: Sequence[list[float]], option: Option, limit: float
) -> Option:
    # The busiest of some consumers has at least an equal share.
    least = max(1, math.floor(demand.rate * service.per_worker / limit))
    for consumers in range(least, option.partitions):
        fewer = _group_option(demand, service, placements, option.partitions, consumers)
        if fewer.busiest_utilisation <= limit:
            return fewer
    return option


def _placed(shares: Sequence[float], candidates: Sequence[int]) -> dict[int, list[list[float]]]:
    """Return the share of the records that each partition gets, by partition count, in some placements of the keys."""
    placements = max(3, min(_PLACEMENTS, _PLACED_KEYS // len(shares)))
    found: dict[int, list[list[float]]] = {partitions: [] for partitions in candidates}
    for number in range(placements):
        for partitions, placed in zip(candidates, partition_shares_of(shares, candidates, f"{number}:"), strict=True):
            found[partitions].append(placed)
    return found


def _busiest_share(placements: Sequence[list[float]], partitions: int, consumers: int) -> float:
    """Return the share of the records that the busiest member of a consumer group gets, in the median of the
    placements. Partitions are assigned in turn."""
    held = capacity.dealt(partitions, consumers)
    return statistics.median(max(capacity.consumer_shares(placed, held)) for placed in placements)


def _group_option(
    demand: Demand, service: Service, placements: Sequence[list[float]], partitions: int, consumers: int
) -> Option:
    share = _busiest_share(placements, partitions, consumers)
    return Option(
        partitions=partitions,
        consumers=consumers,
        records_per_second=1 / (share * service.per_worker),
        utilisation=queueing.utilisation(demand.rate, service.work_seconds, consumers),
        busiest_utilisation=queueing.utilisation(demand.rate * share, service.per_worker, 1),
        wait_ms=_ms(queueing.mean_wait_seconds(demand.rate * share, service.per_worker)),
    )


def hottest_key_utilisation(demand: Demand, service: Service) -> float:
    """Return the share of the time that the records of the hottest key take, one after the other. Neither partitions
    nor consumers change it."""
    return demand.rate * demand.shares[0] * (service.per_key if demand.mode == QUEUE else service.per_worker)


def hottest_key_rate(demand: Demand, service: Service) -> float:
    """Return the records/s of all keys that the hottest key allows, however many partitions and consumers there are."""
    return demand.rate / hottest_key_utilisation(demand, service)


def split_plan(demand: Demand, service: Service) -> SplitPlan | None:
    """Return the smallest split of the hottest keys with which a queue group meets the target, or None if no key is too
    hot for it, too many keys are, or splits are not enough. `service` is that of a queue group. The plan assumes 100
    second keys with equal shares, and takes the busiest sub-lane in the median of several placements."""

    def is_too_hot(share: float) -> bool:
        return queueing.utilisation(demand.rate * share, service.per_key, 1) > demand.target

    too_hot = sum(map(is_too_hot, demand.shares))
    if not 1 <= too_hot <= _MOST_SPLIT_KEYS:
        return None
    for into in SUB_LANES:
        placed = (max(sub_lane_shares(into, f"{number}:")) for number in range(_PLACEMENTS))
        hottest = max([demand.shares[0] * statistics.median(placed), *demand.shares[too_hot : too_hot + 1]])
        if is_too_hot(hottest):
            continue
        for consumers in (demand.consumers, None):
            wanted = msgspec.structs.replace(demand, mode=QUEUE, consumers=consumers)
            option = _queue_option(wanted, service, hottest)
            if option.busiest_utilisation <= demand.target:
                return SplitPlan(keys=too_hot, into=into, option=option)
    return None


def _workers_needed(demand: Demand, service: Service) -> int:
    """Return how many workers meet the target if they share the records evenly."""
    return max(1, math.ceil(demand.rate * service.per_worker / demand.target - 1e-9))


def _queue_option(demand: Demand, service: Service, hottest: float) -> Option:
    """Return the option for a queue group, with the share of its hottest lane. Partitions do not divide its work, so
    one is enough."""
    workers = demand.consumers or min(_MAX_CONSUMERS, _workers_needed(demand, service))
    waits = (
        queueing.mean_wait_seconds(demand.rate, service.per_worker, workers),
        queueing.mean_wait_seconds(demand.rate * hottest, service.per_key),
    )
    shared = queueing.utilisation(demand.rate, service.per_worker, workers)
    return Option(
        partitions=1,
        consumers=workers,
        records_per_second=capacity.queue_rate(hottest, workers, service),
        utilisation=queueing.utilisation(demand.rate, service.work_seconds, workers),
        busiest_utilisation=max(shared, queueing.utilisation(demand.rate * hottest, service.per_key, 1)),
        wait_ms=_ms(max(waits)),
    )


def _ms(seconds: float) -> float | None:
    return None if math.isinf(seconds) else 1e3 * seconds


def rate_text(per_second: float) -> str:
    """Return a rate for people: 12,000 or 3.5 or 0.00012."""
    return f"{per_second:,.0f}" if per_second >= 10 else f"{per_second:.2g}"


def words(demand: Demand, service: Service, found: CapacityPlan, split: SplitPlan | None = None) -> list[str]:
    """Return the plan in sentences: what to take, and why. `split` is what helps if the hottest key is the reason why
    nothing fits."""
    chosen = found.chosen
    who = "worker" if demand.mode == QUEUE else "consumer"
    consumers = f"{chosen.consumers} {who}{'s' if chosen.consumers > 1 else ''}"
    partitions = f"{chosen.partitions} partition{'s' if chosen.partitions > 1 else ''}"
    said = [f"Take {partitions} and {consumers}: they keep up with {rate_text(chosen.records_per_second)} records/s."]
    said.append(
        f"At {rate_text(demand.rate)} records/s they are at work for {chosen.utilisation:.0%} of their time, and the"
        f" busiest has to do {chosen.busiest_utilisation:.0%} of what it can."
    )
    if demand.mode == QUEUE:
        said.append("In a queue group partitions do not part the work: any worker takes the next key that is free.")
    elif chosen.consumers > chosen.partitions:
        idle = chosen.consumers - chosen.partitions
        said.append(f"{idle:,} of the consumers {'has' if idle == 1 else 'have'} no partition, and nothing to do.")
    alone = hottest_key_utilisation(demand, service)
    if found.fits:
        if chosen.wait_ms is not None:
            said.append(f"A record waits {chosen.wait_ms:,.1f} ms on average before the busiest begins with it.")
    elif alone > demand.target:
        said.append(
            f"That is above the target of {demand.target:.0%}, and neither partitions nor {who}s can mend it: the"
            f" hottest key has {demand.shares[0]:.0%} of the records, and they take {alone:.0%} of the time there is,"
            " one after the other. However many there are, they keep up with"
            f" {rate_text(hottest_key_rate(demand, service))} records/s at most."
        )
        said += _split_words(demand, split) if split else ["Make the work shorter, or find a finer key."]
    else:
        said.append(f"That is above the target of {demand.target:.0%}: {_remedy_text(demand, service, found)}.")
    return said


def _remedy_text(demand: Demand, service: Service, found: CapacityPlan) -> str:
    """Return what helps if the target is not met, and the hottest key is not the reason."""
    remedy = found.remedy
    if demand.mode == QUEUE:
        return f"{_workers_needed(demand, service):,} workers would mend it"
    if remedy is not None:
        return f"{remedy.consumers:,} consumers and {remedy.partitions:,} partitions would mend it"
    least = _workers_needed(demand, service)
    if least > CANDIDATES[-1]:
        return (
            f"it takes more than {least:,} consumers with a partition each, and `plan` looks at up to"
            f" {CANDIDATES[-1]:,}. Make the work shorter, or divide the records over several topics"
        )
    return (
        "the keys do not lie evenly enough in the partitions, whatever their number. In a queue group (--mode queue)"
        " any worker takes the next key that is free"
    )


def _split_words(demand: Demand, split: SplitPlan) -> list[str]:
    option = split.option
    helps = "A split of that key helps" if split.keys == 1 else f"Splits of the {split.keys} hottest keys help"
    if demand.mode != QUEUE:
        helps = f"In a queue group by key, {helps[0].lower()}{helps[1:]}"
    workers = f"{option.consumers} worker{'s' if option.consumers > 1 else ''}"
    return [
        (
            f"{helps}: {workers} then keep up with {rate_text(option.records_per_second)} records/s, and the busiest"
            f" has to do {option.busiest_utilisation:.0%} of what it can, if a key has 100 second keys or more that are"
            " all alike. Order is then kept within a second key only:"
        ),
        f"  logbroker queue split GROUP KEY --by header:NAME --into {split.into}",
    ]
