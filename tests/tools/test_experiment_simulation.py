"""`logbroker plan` and the predictions of the scaling experiment, against consumers in virtual time."""

from __future__ import annotations

import statistics

import pytest

from logbroker.tools.experiments import planning
from logbroker.tools.experiments.capacity import GROUP, MODES, QUEUE, Service
from logbroker.tools.experiments.keys import SKEWS, key_shares
from logbroker.tools.experiments.planning import Demand, Option
from logbroker.tools.experiments.scaling_run import KEYS, Cell, ScalingRun, calibrated, with_predictions
from tests.tools.consumer_simulation import lag_share, simulated

SEED = 20261122
WORK_MS = 20.0
SERVICE = {
    GROUP: Service(work_seconds=0.021, worker_pause_seconds=0.002, handover_seconds=0.002),
    QUEUE: Service(work_seconds=0.021, worker_pause_seconds=0.002, handover_seconds=0.005),
}
"""The work lasts longer than it was asked for."""
RECORDS = 600
PLACEMENTS = 15
"""As many as a plan takes the median of: which keys share a partition is chance."""
CELLS = [
    *(
        Cell(mode=GROUP, partitions=partitions, consumers=consumers, skew=skew, work_ms=WORK_MS)
        for skew in SKEWS
        for partitions, consumers in ((1, 1), (2, 4), (4, 4), (16, 6))
    ),
    *(
        Cell(mode=QUEUE, partitions=1, consumers=workers, skew=skew, work_ms=WORK_MS)
        for skew in SKEWS
        for workers in (1, 6)
    ),
]
SPLIT_CELLS = [
    Cell(mode=QUEUE, partitions=1, consumers=workers, skew="hot", work_ms=WORK_MS, split_into=into)
    for workers, into in ((6, 2), (6, 8), (16, 16))
]


def name_of(cell: Cell) -> str:
    split = f"-split-{cell.split_into}" if cell.split_into else ""
    return f"{cell.mode}-{cell.skew}-{cell.partitions}-{cell.consumers}{split}"


@pytest.fixture(scope="module")
def calibration() -> list[ScalingRun]:
    """One consumer alone, as the experiment's own grids have it."""
    return [
        simulated(Cell(mode=mode, partitions=1, consumers=1, skew=skew, work_ms=WORK_MS), SERVICE[mode], 500, SEED)
        for mode in MODES
        for skew in ("uniform", "hot")
    ]


def placements(cell: Cell) -> list[str]:
    return [f"{number}:" for number in range(PLACEMENTS if cell.mode == GROUP else 1)]


def planned(cell: Cell, rate: float, service: Service) -> Option:
    shares = key_shares(cell.skew, KEYS)
    demand = Demand(mode=cell.mode, rate=rate, shares=shares, consumers=cell.consumers, target=1.0)
    return planning.plan(demand, service, candidates=[cell.partitions]).chosen


def test_what_a_record_costs_is_read_out_of_runs(calibration: list[ScalingRun]) -> None:
    for mode in MODES:
        found = calibrated(calibration, mode, WORK_MS)
        assert found.work_seconds == pytest.approx(SERVICE[mode].work_seconds, rel=0.01)
        assert found.worker_pause_seconds == pytest.approx(SERVICE[mode].worker_pause_seconds, rel=0.02)
    handover = calibrated(calibration, QUEUE, WORK_MS).handover_seconds
    assert handover == pytest.approx(SERVICE[QUEUE].handover_seconds, rel=0.02)


@pytest.mark.parametrize("cell", [*CELLS, *SPLIT_CELLS], ids=name_of)
def test_a_backlog_is_drained_as_predicted(calibration: list[ScalingRun], cell: Cell) -> None:
    [*_, run] = with_predictions([*calibration, simulated(cell, SERVICE[cell.mode], RECORDS, SEED)])
    assert run.violations == 0
    assert run.records == sum(run.key_counts) == RECORDS
    near = 0.03 if cell.split_into else 0.01  # The hot key's 480 records are not quite even over 100 second keys.
    assert run.predicted_records_per_second == pytest.approx(run.records_per_second, rel=near)


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_consumers_keep_up_with_what_was_planned_and_with_no_more(calibration: list[ScalingRun], cell: Cell) -> None:
    rate = planned(cell, 1.0, calibrated(calibration, cell.mode, WORK_MS)).records_per_second
    lags = {
        times: statistics.median(
            lag_share(cell, SERVICE[cell.mode], times * rate, RECORDS, SEED, placement)
            for placement in placements(cell)
        )
        for times in (0.94, 1.1)
    }
    print(lags)  # noqa: T201
    assert lags[0.94] < 0.04
    assert lags[1.1] > 0.07


@pytest.mark.parametrize("rate", [60, 120, 240])
def test_a_planned_split_keeps_up_with_what_the_key_alone_does_not(calibration: list[ScalingRun], rate: float) -> None:
    shares = key_shares("hot", KEYS)
    demand = Demand(mode=QUEUE, rate=rate, shares=shares, consumers=None, target=1.0)
    split = planning.split_plan(demand, calibrated(calibration, QUEUE, WORK_MS))
    assert split is not None
    for split_into, workers in ((0, 64), (split.into, split.option.consumers)):
        cell = Cell(mode=QUEUE, partitions=1, consumers=workers, skew="hot", work_ms=WORK_MS, split_into=split_into)
        lag = lag_share(cell, SERVICE[QUEUE], 0.94 * rate, RECORDS, SEED)
        print(cell, lag)  # noqa: T201
        assert (lag < 0.04) == bool(split_into)


@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_consumers_are_as_busy_as_was_planned(calibration: list[ScalingRun], cell: Cell) -> None:
    runs = [simulated(cell, SERVICE[cell.mode], RECORDS, SEED, placement) for placement in placements(cell)]
    service = calibrated(calibration, cell.mode, WORK_MS)
    option = planned(cell, 1.0, service)
    for run in runs:
        expected = run.load_records_per_second * option.utilisation
        assert run.utilisation == pytest.approx(expected, rel=0.02)
    if cell.mode == GROUP:
        # What is planned includes the pauses between records.
        busiest = statistics.median(run.busiest_utilisation / run.load_records_per_second for run in runs)
        assert busiest * service.per_worker / service.work_seconds == pytest.approx(
            option.busiest_utilisation, rel=0.05
        )
