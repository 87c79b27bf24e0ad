"""The machine that says which gateways are alive, and who has which home."""

from __future__ import annotations

import random
import sys

from logbroker.broker.cluster_engine.ownership.gateways import (
    ALIVE_SECONDS,
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    RELEASE_SECONDS,
    UNDER_WAY_SECONDS,
    Gateways,
    Heartbeat,
)

HOMES = 50


def heartbeat(gateway: str, *homes: int, number: int = 1) -> Heartbeat:
    return Heartbeat(f"{gateway}:9192", number, homes)


def seen_by(own_id: str, *others: str, now: float = 100.0) -> Gateways:
    """All have written a heartbeat just now."""
    gateways = Gateways(own_id, HOMES)
    for each in (own_id, *others):
        gateways.heard(each, heartbeat(each), now)
    return gateways


def test_each_home_has_one_owner_on_whom_all_agree() -> None:
    views = [seen_by(own, *({"a", "b", "c"} - {own})) for own in "abc"]
    shares = [view.wanted(100.0) for view in views]
    assert all(shares)
    assert sorted(home for share in shares if share for home in share) == list(range(HOMES))


def test_only_the_homes_of_a_dead_gateway_change_hands() -> None:
    gateways = seen_by("a", "b", "c")
    steps = round(ALIVE_SECONDS / HEARTBEAT_SECONDS)
    before = {home: gateways.owner(home, 100.0) for home in range(HOMES)}
    for step in range(1, steps):
        for each in "ab":
            gateways.heard(each, heartbeat(each), 100.0 + step * HEARTBEAT_SECONDS)
    later = 100.01 + ALIVE_SECONDS
    assert gateways.alive(later) == ["a", "b"]
    after = {home: gateways.owner(home, later) for home in range(HOMES)}
    assert {home for home in before if before[home] != after[home]} == {home for home in before if before[home] == "c"}


def test_a_gateway_that_leaves_is_gone_at_once() -> None:
    gateways = seen_by("a", "b")
    gateways.left("b")
    assert gateways.wanted(100.0) == set(range(HOMES))
    assert gateways.addresses(100.0) == []
    assert gateways.appends_until(100.0) == 100.0


def test_a_gateway_that_is_started_again_replaces_the_one_before() -> None:
    gateways = seen_by("a", "b")
    gateways.heard("b2", heartbeat("b"), 100.1)
    assert gateways.alive(100.1) == ["a", "b2"]


def test_who_does_not_read_its_own_heartbeats_cannot_tell() -> None:
    gateways = seen_by("a", "b")
    for step in range(1, 20):
        gateways.heard("b", heartbeat("b"), 100.0 + step * HEARTBEAT_SECONDS)
    assert gateways.wanted(100.0 + 19 * HEARTBEAT_SECONDS) is None


def test_time_without_any_heartbeat_counts_for_nobody() -> None:
    """The cluster did not answer, and now it does: nobody is taken for dead because it comes a moment later."""
    gateways = seen_by("a", "b")
    wanted = gateways.wanted(100.0)
    gateways.heard("a", heartbeat("a"), 130.0)
    assert gateways.wanted(130.0) == wanted
    for step in range(1, 6):
        gateways.heard("a", heartbeat("a"), 130.0 + step * HEARTBEAT_SECONDS)
    assert gateways.wanted(132.0) == set(range(HOMES))


def test_a_home_is_claimed_when_it_was_given_up_or_after_a_while() -> None:
    gateways = seen_by("a", "b")
    home = min(gateways.wanted(100.0) or ())
    now = 100.0
    while now < 100.0 + RELEASE_SECONDS:
        for each, homes in (("a", ()), ("b", (home,))):
            gateways.heard(each, heartbeat(each, *homes), now)
        assert home in (gateways.wanted(now) or ())
        assert gateways.is_anothers(home, now)
        assert not gateways.is_free(home, now)
        now += HEARTBEAT_SECONDS
    gateways.heard("b", heartbeat("b", home), now)
    assert gateways.is_free(home, now)
    gateways = seen_by("a", "b")
    gateways.wanted(100.0)
    gateways.heard("b", heartbeat("b", home), 100.1)
    gateways.heard("b", heartbeat("b"), 100.2)
    assert gateways.is_free(home, 100.2)


def test_appends_of_a_gateway_end_with_its_lease() -> None:
    gateways = seen_by("a", "b")
    assert gateways.appends_until(100.0) == 100.0 + LEASE_SECONDS + UNDER_WAY_SECONDS
    for step in range(1, 6):
        gateways.heard("a", heartbeat("a"), 100.0 + step * HEARTBEAT_SECONDS)
    assert gateways.appends_until(102.0) == 100.0 + LEASE_SECONDS + UNDER_WAY_SECONDS
    later = 102.0
    assert gateways.appends_until(later + 60.0) == later + 60.0


def test_gateways_agree_a_while_after_any_history() -> None:
    seed = random.randrange(1 << 32)
    sys.stdout.write(f"{seed=}\n")
    rng = random.Random(seed)
    names = "abcde"
    views = {name: Gateways(name, HOMES) for name in names}
    now = 100.0
    for _ in range(300):
        now += rng.uniform(0, 2 * HEARTBEAT_SECONDS)
        name = rng.choice(names)
        for view in views.values():
            if rng.random() < 0.1:
                view.left(name)
            else:
                view.heard(name, heartbeat(name, rng.randrange(HOMES)), now)
    alive = rng.sample(names, 3)
    for _ in range(round(ALIVE_SECONDS / HEARTBEAT_SECONDS) + 2):
        now += HEARTBEAT_SECONDS
        for name in alive:
            for view in views.values():
                view.heard(name, heartbeat(name), now)
    shares = [views[name].wanted(now) or set() for name in alive]
    assert sorted(home for share in shares for home in share) == list(range(HOMES))
    for name in set(names) - set(alive):
        assert views[name].wanted(now) is None
