"""The examples of the README work as they stand."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass

from logbroker.embedded_broker import EmbeddedBroker
from logbroker.v1 import admin_pb2, log_pb2

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_python_example_prints_records(tmp_path: Path) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    result = subprocess.run(
        [sys.executable, "-W", "error", "-c", example], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert len(lines) == 11
    assert "b'customer-" in lines[0]
    assert lines[-1] == "1000 orders billed"
    assert result.stderr == ""


def test_every_link_leads_somewhere() -> None:
    targets = re.findall(r"\]\((?!https?:)([^)#]+)\)", README.read_text(encoding="utf-8"))
    assert targets
    assert [target for target in targets if not (README.parent / target).exists()] == []


def test_the_grpcurl_examples_create_produce_and_fetch(logbroker_broker: EmbeddedBroker) -> None:
    """What grpcurl does, without it: JSON in, the messages of the .proto files over the wire, JSON out."""
    text = README.read_text(encoding="utf-8")
    calls = re.findall(r"grpcurl -plaintext -d '(.*?)' \\\n\s+127\.0\.0\.1:9192 ([\w.]+)/(\w+)", text)
    assert [name for _, _, name in calls] == ["CreateTopics", "Produce", "Fetch"]
    services = {**admin_pb2.DESCRIPTOR.services_by_name, **log_pb2.DESCRIPTOR.services_by_name}
    answers = {}
    with grpc.insecure_channel(logbroker_broker.address) as channel:
        for request, service, name in calls:
            method = services[service.rpartition(".")[2]].methods_by_name[name]
            call: Any = channel.unary_unary(
                f"/{service}/{name}",
                request_serializer=GetMessageClass(method.input_type).SerializeToString,
                response_deserializer=GetMessageClass(method.output_type).FromString,
            )
            answer = call(json_format.Parse(request, GetMessageClass(method.input_type)()), timeout=25)
            answers[name] = json_format.MessageToDict(answer)
    assert answers["CreateTopics"]["results"][0]["topic"]["partitions"] == 4
    assert "status" not in answers["Produce"]["results"][0]
    (record,) = answers["Fetch"]["results"][0]["records"]
    assert (record["key"], record["value"]) == ("YWxpY2U=", "aGVsbG8=")
