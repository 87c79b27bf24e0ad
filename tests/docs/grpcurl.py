"""Stands in for grpcurl where it is not installed: JSON in, messages of the .proto files over the wire, JSON out.

`python -m tests.docs.grpcurl -plaintext [-d JSON] HOST:PORT list|SERVICE/METHOD`
"""

from __future__ import annotations

import sys
from typing import Any

import grpc
from google.protobuf import json_format
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2

from logbroker.v1 import admin_pb2, groups_pb2, log_pb2, queues_pb2

_SERVICES = {
    service.full_name: service
    for module in (admin_pb2, groups_pb2, log_pb2, queues_pb2, health_pb2)
    for service in module.DESCRIPTOR.services_by_name.values()
}


def main(arguments: list[str]) -> str:
    """Make the call and return the answer."""
    plain, *rest = arguments
    if plain != "-plaintext":
        raise SystemExit("grpcurl: the broker speaks no TLS: -plaintext")
    text = rest.pop(1) if rest[0] == "-d" else "{}"
    *_, address, name = rest
    if name == "list":
        return "\n".join(sorted(_SERVICES))
    service, _, method_name = name.partition("/")
    method = _SERVICES[service].methods_by_name[method_name]
    with grpc.insecure_channel(address) as channel:
        call: Any = channel.unary_unary(
            f"/{name}",
            request_serializer=GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
        )
        answer = call(json_format.Parse(text, GetMessageClass(method.input_type)()), timeout=25)
    return json_format.MessageToJson(answer)


if __name__ == "__main__":
    sys.stdout.write(main(sys.argv[1:]) + "\n")
