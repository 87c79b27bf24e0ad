"""The model behind `logbroker plan`: queueing, capacity, the choice, and what is said of it."""

from __future__ import annotations

import json
import math
import random
import statistics
from pathlib import Path

import msgspec
import pytest

from logbroker.record.partitioner import partition_for_key
from logbroker.tools.experiments import capacity, keys, planning, queueing
from logbroker.tools.experiments.advice import advice, knee, worst_shares
from logbroker.tools.experiments.capacity import GROUP, MODES, QUEUE, Service
from logbroker.tools.experiments.keys import hot_shares, key_shares, partition_shares_of
from logbroker.tools.experiments.planning import Demand, SplitPlan
from logbroker.tools.experiments.scaling_report import scaling_csv, scaling_page
from logbroker.tools.experiments.scaling_run import KEYS, Scaling, ScalingRun, calibrated, with_predictions
from tests.cli.command import failure_of, logbroker, output_of

SEED = 20261121
SERVICE = Service(work_seconds=0.009, worker_pause_seconds=0.001, handover_seconds=0.003)


def demand(rate: float, shares: list[float], mode: str = GROUP, consumers: int | None = None) -> Demand:
    return Demand(mode=mode, rate=rate, shares=shares, consumers=consumers, target=0.7)


def a_run(
    partitions: int,
    rate: float,
    *,
    mode: str = GROUP,
    skew: str = "uniform",
    violations: int = 0,
    split_into: int = 0,
) -> ScalingRun:
    shares = key_shares(skew, KEYS)
    counts = [round(1000 * share) for share in shares]
    return ScalingRun(
        mode=mode,
        partitions=partitions,
        consumers=4,
        skew=skew,
        work_ms=10.0,
        split_into=split_into,
        records=sum(counts),
        seconds=sum(counts) / rate,
        records_per_second=rate,
        predicted_records_per_second=0.0,
        idle_share=0.1,
        violations=violations,
        work_ms_mean=10.2,
        worker_pause_ms=0.5,
        handover_ms=None if split_into else 4.0,
        load_records_per_second=0.6 * rate,
        p50_ms=11.0,
        p99_ms=20.0,
        utilisation=0.5,
        busiest_utilisation=0.6,
        rebalance_ms=30.0 if mode == GROUP else None,
        hottest_key_share=shares[0],
        hottest_partition_share=0.3,
        held=capacity.dealt(partitions, 4) if mode == GROUP else [[]] * 4,
        key_counts=counts,
    )


def test_erlang_c_is_what_the_tables_say() -> None:
    assert queueing.erlang_c(1, 0.5) == pytest.approx(0.5)
    assert queueing.erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert queueing.erlang_c(10, 8.0) == pytest.approx(0.4092, abs=1e-4)
    assert 0 < queueing.erlang_c(1000, 990.0) < 1, "it does not overflow"


def test_waits_are_those_of_known_queues() -> None:
    m_m_1 = queueing.mean_wait_seconds(50, 0.01, service_scv=1.0)
    assert m_m_1 == pytest.approx(0.01), "rho / (mu - lambda)"
    assert queueing.mean_wait_seconds(50, 0.01) == pytest.approx(m_m_1 / 2), "M/D/1 waits half as long"
    assert queueing.mean_wait_seconds(100, 0.01) == math.inf
    assert queueing.mean_wait_seconds(0, 0.01) == 0.0


def test_the_wait_is_that_of_a_simulated_queue() -> None:
    """M/D/c, record by record: who comes takes the server that is free first."""
    draw = random.Random(SEED)
    for servers, load in ((1, 0.7), (4, 0.8)):
        free = [0.0] * servers
        now, waited, records = 0.0, 0.0, 200_000
        for _ in range(records):
            now += draw.expovariate(servers * load)
            server = min(range(servers), key=free.__getitem__)
            waited += max(0.0, free[server] - now)
            free[server] = max(now, free[server]) + 1.0
        assert queueing.mean_wait_seconds(servers * load, 1.0, servers) == pytest.approx(waited / records, rel=0.1)


def test_the_hottest_consumer_or_key_decides() -> None:
    assert capacity.dealt(5, 2) == [[0, 2, 4], [1, 3]]
    assert capacity.consumer_shares([0.4, 0.1, 0.2, 0.3, 0.0], [[0, 2, 4], [1, 3]]) == pytest.approx([0.6, 0.4])
    assert capacity.group_rate([0.6, 0.4], SERVICE) == pytest.approx(1 / 0.006)
    assert capacity.queue_rate(0.01, 4, SERVICE) == pytest.approx(400), "the workers"
    assert capacity.queue_rate(0.5, 4, SERVICE) == pytest.approx(1 / 0.006), "the hottest key, with its handovers"


def test_a_queue_is_drained_round_by_round() -> None:
    assert capacity.queue_drain_seconds([10] * 8, 4, SERVICE) == pytest.approx(80 * 0.010 / 4)
    assert capacity.queue_drain_seconds([10], 4, SERVICE) == pytest.approx(10 * 0.012)
    # Five rounds of eight keys, then five of one alone.
    assert capacity.queue_drain_seconds([10] + [5] * 7, 4, SERVICE) == pytest.approx(5 * 0.020 + 5 * 0.012)


def test_a_plan_is_the_smallest_that_keeps_to_the_target() -> None:
    wanted = demand(250, key_shares("uniform", 1000))
    found = planning.plan(wanted, SERVICE)
    assert found.fits
    assert found.chosen.busiest_utilisation <= 0.7
    smaller = [option for option in found.options if option.partitions < found.chosen.partitions]
    assert smaller
    assert all(option.busiest_utilisation > 0.7 for option in smaller)
    assert found.chosen.records_per_second >= 250 / 0.7
    assert found.chosen.utilisation == pytest.approx(2.25 / found.chosen.consumers)


def test_each_key_is_hashed_once_a_placement_however_many_counts_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a plan for 100,000 keys takes most of a minute."""
    hashed = 0

    def counted(key: bytes, partitions: int) -> int:
        nonlocal hashed
        hashed += 1
        return partition_for_key(key, partitions)

    monkeypatch.setattr(keys, "partition_for_key", counted)
    shares = key_shares("zipf", 20_000)
    found = planning.plan(demand(40_000, shares), SERVICE)
    assert not found.fits, "all counts of partitions and of consumers are tried"
    assert hashed == 3 * len(shares)


def test_shares_of_several_partition_counts_are_those_of_each() -> None:
    shares = key_shares("zipf", 1000)
    for partitions, found in zip(planning.CANDIDATES, partition_shares_of(shares, planning.CANDIDATES), strict=True):
        assert len(found) == partitions
        routed = [0.0] * partitions
        for number, share in enumerate(shares):
            routed[partition_for_key(keys.key_name(number), partitions)] += share
        assert found == pytest.approx(routed)


def test_more_consumers_than_partitions_have_nothing_to_do() -> None:
    few = planning.plan(demand(90, [0.01] * 100, consumers=8), SERVICE, candidates=(2,)).chosen
    as_many = planning.plan(demand(90, [0.01] * 100, consumers=2), SERVICE, candidates=(2,)).chosen
    assert few.records_per_second == pytest.approx(as_many.records_per_second)


def test_a_key_that_is_too_hot_is_named_as_what_it_is() -> None:
    wanted = demand(200, hot_shares(0.5, 100))
    found = planning.plan(wanted, SERVICE)
    assert not found.fits
    least = min(option.busiest_utilisation for option in found.options)
    assert least < found.chosen.busiest_utilisation <= 1.1 * least, "partitions that gain next to nothing"
    said = " ".join(planning.words(wanted, SERVICE, found))
    assert "neither partitions nor consumers can mend it" in said
    assert "50% of the records" in said


def test_a_split_is_planned_where_one_key_is_too_hot_and_only_there() -> None:
    """A key with half of the records takes 0.5 * 0.012 s of each record's time: with a target of 0.75, it is too hot
    above 125 records/s."""

    def split_at(rate: float, consumers: int | None = None) -> SplitPlan | None:
        wanted = Demand(mode=QUEUE, rate=rate, shares=hot_shares(0.5, 100), consumers=consumers, target=0.75)
        found = planning.split_plan(wanted, SERVICE)
        assert planning.plan(wanted, SERVICE).fits == (found is None)
        return found

    assert split_at(125) is None
    least = split_at(125.1)
    assert least is not None
    assert (least.keys, least.into) == (1, 2)
    most = 125 / statistics.median(max(keys.sub_lane_shares(2, f"{number}:")) for number in range(15))
    for rate, into in ((most - 0.1, 2), (most + 0.1, 4), (600, 8)):
        found = split_at(rate)
        assert found is not None
        assert found.into == into
        assert found.option.busiest_utilisation <= 0.75
        assert found.option.records_per_second >= rate / 0.75
        assert found.option.consumers == math.ceil(rate * 0.010 / 0.75)
    kept, raised = split_at(600, consumers=20), split_at(600, consumers=2)
    assert kept is not None
    assert raised is not None
    assert (kept.option.consumers, raised.option.consumers) == (20, 8), "two workers are not enough, split or not"


def test_several_keys_that_are_too_hot_are_all_split_and_many_are_not() -> None:
    wanted = demand(400, [0.2, 0.2, 0.2, *[0.01] * 40], QUEUE)
    found = planning.split_plan(wanted, SERVICE)
    assert found is not None
    assert found.keys == 3
    assert "Splits of the 3 hottest keys help" in " ".join(
        planning.words(wanted, SERVICE, planning.plan(wanted, SERVICE), found)
    )
    assert planning.split_plan(demand(2000, key_shares("uniform", 10), QUEUE), SERVICE) is None
    assert planning.split_plan(demand(100_000, hot_shares(0.5, 1000), QUEUE), SERVICE) is None, "64 are not enough"


@pytest.mark.parametrize("mode", [GROUP, QUEUE])
def test_the_words_say_what_bounds_the_hottest_key_and_which_split_helps(mode: str) -> None:
    wanted = demand(200, hot_shares(0.5, 100), mode)
    found, split = planning.plan(wanted, SERVICE), planning.split_plan(wanted, SERVICE)
    assert split is not None
    said = planning.words(wanted, SERVICE, found, split)
    text = " ".join(said)
    who, bound = ("consumers", 200) if mode == GROUP else ("workers", 167)
    assert f"neither partitions nor {who} can mend it" in text
    assert f"they keep up with {bound} records/s at most" in text
    assert said[-1] == f"  logbroker queue split GROUP KEY --by header:NAME --into {split.into}"
    assert "shorter" not in text
    assert ("In a queue group by key, a split of that key helps" in text) == (mode == GROUP)


def test_a_queue_group_is_planned_by_workers() -> None:
    found = planning.plan(demand(250, key_shares("uniform", 100), QUEUE), SERVICE)
    assert (found.chosen.partitions, found.chosen.consumers) == (1, 4)
    assert found.chosen.busiest_utilisation == pytest.approx(0.625)
    short = demand(250, key_shares("uniform", 100), QUEUE, consumers=3)
    assert "70%: 4 workers would mend it." in " ".join(planning.words(short, SERVICE, planning.plan(short, SERVICE)))


@pytest.mark.parametrize("consumers", [None, 150, 151, 400, 1000])
def test_a_plan_for_many_consumers_has_as_many_partitions_as_they_need(consumers: int | None) -> None:
    wanted = demand(10_000, key_shares("uniform", 30_000), consumers=consumers)
    found = planning.plan(wanted, SERVICE)
    if consumers in (150, 151):  # They would have to do 67 % if the keys lay evenly.
        assert not found.fits
        assert found.remedy is not None
        assert (found.remedy.busiest_utilisation <= 0.7, found.remedy.consumers > 151) == (True, True)
        remedy = f"{found.remedy.consumers} consumers and {found.remedy.partitions} partitions would mend it"
        assert remedy in " ".join(planning.words(wanted, SERVICE, found))
        return
    assert found.fits
    assert found.remedy is None
    assert found.chosen.partitions > 128
    idle = (consumers or 0) - found.chosen.partitions
    has_idle = f"{idle} of the consumers have no partition" in " ".join(planning.words(wanted, SERVICE, found))
    assert has_idle == (idle > 0)


def test_a_given_number_of_consumers_may_be_the_number_of_partitions() -> None:
    wanted = demand(500, [1 / 7] * 7, consumers=7)
    assert 7 not in planning.CANDIDATES
    assert [option.partitions for option in planning.plan(wanted, SERVICE).options] == sorted({*planning.CANDIDATES, 7})
    assert [option.partitions for option in planning.plan(wanted, SERVICE, candidates=(1, 2)).options] == [1, 2]


def test_what_no_number_of_consumers_mends_is_said_not_to_be_mended_by_more() -> None:
    many = demand(200_000, key_shares("uniform", 30_000), consumers=400)
    found = planning.plan(many, SERVICE)
    assert (found.fits, found.remedy) == (False, None)
    text = " ".join(planning.words(many, SERVICE, found))
    assert "it takes more than 2,858 consumers" in text
    assert "up to 1,000" in text
    uneven = demand(250, [0.25] * 4, consumers=4)
    found = planning.plan(uneven, SERVICE, candidates=(1, 2, 3))
    assert (found.fits, found.remedy) == (False, None)
    assert "the keys do not lie evenly enough" in " ".join(planning.words(uneven, SERVICE, found))


def test_what_was_measured_replaces_what_is_assumed() -> None:
    runs = [a_run(4, 380), a_run(4, 100, skew="hot"), a_run(4, 300, mode=QUEUE)]
    service = calibrated(runs, GROUP, 20.0)
    assert service.work_seconds == pytest.approx(0.0202), "work is as much longer than asked as it was"
    assert service.worker_pause_seconds == pytest.approx(0.0005)
    assert service.handover_seconds == pytest.approx(0.004)
    assert calibrated([], GROUP, 20.0).work_seconds == 0.02


def test_the_advice_says_where_partitions_stop_helping_and_which_key_is_hot() -> None:
    runs = [a_run(1, 95), a_run(4, 350), a_run(8, 360), a_run(1, 94, skew="hot"), a_run(4, 110, skew="hot")]
    runs.append(a_run(1, 300, mode=QUEUE))
    assert knee(runs[:3]).partitions == 4
    said = advice(Scaling(seed=1, keys=KEYS, runs=with_predictions(runs)))
    assert said[0].startswith("For 4 consumers in a consumer group, choose 4 partitions")
    text = " ".join(said)
    assert "stop helping at 4 for 4 consumers with 10 ms of work (350 records/s instead of 95 with 1)." in text
    assert "key-0 is hot: 80% of the records" in text
    assert "4 workers of a queue group by key to 300 records/s at best (1 partition)." in text
    assert "0 records were finished after a later one of their key (as promised)" in text
    assert "split" not in text
    runs.append(a_run(1, 100, mode=QUEUE, skew="hot"))
    runs.append(a_run(1, 320, mode=QUEUE, skew="hot", split_into=8))
    text = " ".join(advice(Scaling(seed=1, keys=KEYS, runs=with_predictions(runs))))
    assert (
        "4 workers with 10 ms of work: 320 records/s with the hot key split into 8, 100 without (3.2 times as many)"
        in text
    )
    assert "4 workers of a queue group by key to 100 records/s at best" in text, "without the split"
    wrong = advice(Scaling(seed=1, keys=KEYS, runs=with_predictions([a_run(4, 350, violations=3)])))
    assert any("THIS MUST NOT HAPPEN" in sentence for sentence in wrong)


def test_the_choice_is_what_every_skew_can_live_with() -> None:
    """More partitions can be slower, where hot keys come to lie together by chance."""
    uniform = [a_run(1, 95), a_run(4, 320), a_run(8, 360)]
    zipf = [a_run(1, 94, skew="zipf"), a_run(4, 220, skew="zipf"), a_run(8, 170, skew="zipf")]
    assert worst_shares([uniform, zipf]) == pytest.approx({1: 95 / 360, 4: 320 / 360, 8: 170 / 220})
    said = advice(Scaling(seed=1, keys=KEYS, runs=with_predictions([*uniform, *zipf])))
    assert said[0].startswith("For 4 consumers in a consumer group, choose 4 partitions.")
    assert "came to 89% of the best rate or more" in said[0]
    assert "not tried" not in said[0]
    assert "More were not tried" in advice(Scaling(seed=1, keys=KEYS, runs=with_predictions(uniform[:2])))[0]


def test_metrics_and_report_have_every_run() -> None:
    split = a_run(1, 300, mode=QUEUE, skew="hot", split_into=8)
    found = Scaling(seed=5, keys=KEYS, runs=with_predictions([a_run(1, 95), split]))
    head, *rows = scaling_csv(found).splitlines()
    assert head.startswith("mode,partitions,consumers,skew,work_ms,split_into,records,")
    assert [row.split(",")[0] for row in rows] == ["group", "queue"]
    html = scaling_page(found, {"model": b"<svg/>"}, "")
    assert html.count("<tr>") == 1 + 2
    assert "hot, split into 8" in html
    assert "data:image/svg+xml;base64,PHN2Zy8+" in html
    assert "seed 5" in html


@pytest.mark.parametrize(
    ("content", "wrong"),
    [
        (b'{"seed": 1, "keys": 1, "runs": [], "extra": ' + b"[" * 200_000 + b"]" * 200_000 + b"}", "nested too deep"),
        (b'{"seed": 1, "keys": 1, "runs": [{"mode": "\xff"}]}', "utf-8"),
        (b'{"seed": 1', "truncated"),
        (b"[]", "Expected `object`"),
    ],
    ids=["deep", "no text", "cut", "another type"],
)
def test_a_file_of_measurements_that_is_none_is_refused(tmp_path: Path, content: bytes, wrong: str) -> None:
    path = tmp_path / "scaling.json"
    path.write_bytes(content)
    told = failure_of("plan", "--from", path)
    assert f"{path} is not what `logbroker experiment scaling` writes: " in told
    assert wrong in told


def test_the_command_plans_from_what_is_given() -> None:
    found = json.loads(output_of("plan", "--rate", "400", "--work-ms", "20", "--json"))
    assert found["plan"]["fits"]
    assert found["plan"]["chosen"]["records_per_second"] >= 400
    said = output_of("plan", "--rate", "400", "--work-ms", "20").decode()
    assert "Take " in said
    assert "Assumed: 20.00 ms of work" in said


def test_the_command_says_when_a_split_helps() -> None:
    hot = ("plan", "--rate", "400", "--work-ms", "20", "--hottest-share", "0.5")
    for mode in MODES:
        assert b"logbroker queue split GROUP KEY --by header:NAME --into 16" in output_of(*hot, "--mode", mode)
    found = json.loads(output_of(*hot, "--mode", "queue", "--json"))
    assert found["split"]["into"] == 16
    assert found["hottest_key_records_per_second"] == pytest.approx(80)
    fits = json.loads(output_of("plan", "--rate", "400", "--work-ms", "20", "--json"))
    assert fits["split"] is None


def test_a_skew_and_a_share_of_the_hottest_key_are_refused_together() -> None:
    for skew in keys.SKEWS:
        result = logbroker("plan", "--rate", "5", "--work-ms", "20", "--skew", skew, "--hottest-share", "0.2")
        assert result.returncode == 2
        assert b"give either --skew or --hottest-share" in result.stderr


def test_measurements_made_before_there_were_splits_are_read(tmp_path: Path) -> None:
    document = msgspec.to_builtins(Scaling(seed=1, keys=KEYS, runs=[a_run(1, 95)]))
    del document["runs"][0]["split_into"]
    path = tmp_path / "scaling.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    assert b"Measured: " in output_of("plan", "--from", path)


def test_the_command_says_what_is_missing_or_wrong(tmp_path: Path) -> None:
    assert logbroker("plan", "--work-ms", "20").returncode == 2
    other = tmp_path / "other.json"
    other.write_text('{"seed": 1}', encoding="utf-8")
    assert "is not what `logbroker experiment scaling` writes" in failure_of("plan", "--from", other, "--rate", "5")


@pytest.mark.parametrize(
    ("rate", "text"), [(12_345.6, "12,346"), (10, "10"), (3.46, "3.5"), (0.001, "0.001"), (0.000123, "0.00012")]
)
def test_a_small_rate_is_not_shown_as_none(rate: float, text: str) -> None:
    assert planning.rate_text(rate) == text
