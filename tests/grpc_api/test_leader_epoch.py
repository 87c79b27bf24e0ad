"""A reader across a cut of the log: told where what it read is gone, served where it is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from logbroker.embedded_broker import EmbeddedBroker
from logbroker.v1 import log_pb2 as pb
from tests.grpc_api.api import Api, batch_of, values_in


@pytest.fixture
def cut(logbroker_broker: EmbeddedBroker) -> Iterator[Api]:
    """A broker whose topic `t` had two records and a torn one: its leader epoch is 1 from offset 2 on."""
    api = Api(logbroker_broker.address)
    api.create("t")
    api.produce_values("t", [b"0", b"1"])
    api.channel.close()
    logbroker_broker.kill()
    with (logbroker_broker.data_dir / "t-0" / f"{0:020d}.log").open("ab") as log:
        log.write(batch_of(b"torn")[:-1])
    logbroker_broker.start()
    api = Api(logbroker_broker.address)
    assert api.produce_values("t", [b"2"]).leader_epoch == 1
    yield api
    api.channel.close()


def item(offset: int) -> pb.FetchItem:
    return pb.FetchItem(topic="t", offset=offset, last_leader_epoch=0)


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_reader_of_an_older_epoch_goes_on_through_the_newer_one(cut: Api, offset: int) -> None:
    (result,) = cut.log.Fetch(pb.FetchRequest(items=[item(offset)])).results
    assert not result.status.code, result.status
    assert result.next_offset == 3
    requests = iter([pb.FetchStreamRequest(assign=[item(offset)], add_credit_bytes=10_000)])
    found: list[bytes | None] = []
    stream = cut.log.FetchStream(requests)
    for response in stream:
        for result in response.results:
            assert not result.status.code, result.status
            found += values_in(result.batches, offset)
        if found and found[-1] == b"2":
            # The next record is read under the epoch that this one had.
            cut.produce_values("t", [b"3"])
        if found and found[-1] == b"3":
            break
    stream.cancel()
    assert found == [b"%d" % number for number in range(offset, 4)]


def test_a_reader_of_what_was_cut_is_told(cut: Api) -> None:
    (result,) = cut.log.Fetch(pb.FetchRequest(items=[item(3)])).results
    assert result.status.reason == "LOG_TRUNCATED"
