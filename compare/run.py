"""The comparison: all sides in turn, round after round, so that a noisy minute hits all of them."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from compare import machine
from compare.peers.peer import Peer
from compare.workloads import Figure, Plan, Side, measure, measure_restart
from logbroker.errors import LogbrokerError


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a comparison."""

    versions: Mapping[str, str]
    """Version by the name of each peer that took part."""
    left_out: Sequence[str]
    """Peers and measurements that did not take part or failed, each with the reason."""
    figures: Sequence[Figure]
    machine: str
    """The machine that it was measured on."""


def steps_of(peers: Sequence[Peer], plan: Plan) -> int:
    """Return how often `on_step` is called at most."""
    sides = [Side(peer, durability) for peer in peers for durability in peer.promises]
    return plan.rounds * len(sides) + len(peers)


def compare(peers: Sequence[Peer], plan: Plan, on_step: Callable[[str], None]) -> Comparison:
    """Run all rounds; `on_step` is told what was done, after each start of a server. A side that fails is left out from
    then on, with what it said."""
    figures: list[Figure] = []
    left_out: list[str] = []
    sides = _present(peers, left_out)
    versions = {side.peer.name: side.peer.version() for side in sides}
    directory = plan.directory or Path(tempfile.gettempdir())
    if (kind := machine.file_system(directory)) in machine.IN_MEMORY:
        left_out.append(f"{directory} is a {kind}: a sync costs nothing there; give a directory on a disk")
    rounds = plan.rounds if set(plan.workloads) != {"restart"} else 0
    for number in range(rounds):
        for side in list(sides):
            if not _done(side, lambda side: measure(side, plan, figures.append), left_out):
                sides.remove(side)
            on_step(f"round {number + 1}, {side.peer.title}, {side.durability.value}")
    for side in sides:
        if side.is_first and "restart" in plan.workloads and "restart" not in side.peer.cannot:
            _done(side, lambda side: measure_restart(side, plan, figures.append), left_out)
            on_step(f"restart, {side.peer.title}")
    return Comparison(versions=versions, left_out=left_out, figures=figures, machine=machine.words(directory))


def _present(peers: Sequence[Peer], left_out: list[str]) -> list[Side]:
    """The sides that can be measured; adds the words about all others."""
    sides = []
    for peer in peers:
        if missing := peer.missing():
            left_out.append(f"{peer.title}: {missing}")
            continue
        left_out += [f"{peer.title}, {workload}: {why}" for workload, why in peer.cannot.items()]
        for durability in peer.promises:
            if why := peer.refuses(durability):
                left_out.append(f"{peer.title}, {durability.value}: {why}")
            else:
                sides.append(Side(peer, durability))
    return sides


def _done(side: Side, run: Callable[[Side], None], left_out: list[str]) -> bool:
    try:
        run(side)
    except (LogbrokerError, OSError) as error:
        left_out.append(f"{side.peer.title}, {side.durability.value}: failed: {error}")
        return False
    return True
