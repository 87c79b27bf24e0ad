"""Server reflection: tools such as grpcurl use it to find services and messages without the .proto files.

Two versions are served: v1 for newer tools, and v1alpha for older ones. Both have the same messages in different
packages (github.com/grpc/grpc/blob/master/doc/server-reflection.md); grpcio-reflection has only v1alpha.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any, Final

import grpc
from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha import reflection_pb2
from grpc_reflection.v1alpha.reflection import aio

from logbroker.grpc_api.methods import method_table
from logbroker.grpc_api.status import Context, answers

_ALPHA: Final = reflection_pb2.DESCRIPTOR
_ALPHA_SERVICE: Final = _ALPHA.services_by_name["ServerReflection"].full_name
_SERVICE: Final = _ALPHA_SERVICE.replace("v1alpha", "v1")


def add_reflection(server: grpc.aio.Server, files: Iterable[FileDescriptor]) -> None:
    """Serve reflection of all services of these files. A file must come after the files that it imports."""
    # A separate pool: if the program has generated code of v1, the default pool has the same names.
    pool = DescriptorPool()
    names = [_SERVICE, _ALPHA_SERVICE]
    for file in files:
        pool.AddSerializedFile(file.serialized_pb)
        names += [service.full_name for service in file.services_by_name.values()]
    pool.AddSerializedFile(_ALPHA.serialized_pb)
    pool.Add(_v1())
    service = ReflectionService(aio.ReflectionServicer(names, pool))
    descriptor = _ALPHA.services_by_name["ServerReflection"]
    server.add_generic_rpc_handlers(
        tuple(method_table(descriptor, service, full_name=name) for name in (_SERVICE, _ALPHA_SERVICE))
    )


class ReflectionService:
    """Passes requests to grpcio-reflection, after the same checks as for all other services."""

    def __init__(self, servicer: aio.ReflectionServicer) -> None:
        self._servicer = servicer

    @answers
    async def server_reflection_info(self, _: object, context: Context) -> None:
        """Answer each request of a stream."""

        async def requests() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
            while (request := await context.read()) is not grpc.aio.EOF:
                yield request

        # Any, because the type stubs say that it is a coroutine.
        responses: Any = self._servicer.ServerReflectionInfo(requests(), context)
        async for response in responses:
            await context.write(response)


def _v1() -> FileDescriptorProto:
    """Return the file descriptor of v1: a renamed copy of the descriptor of v1alpha."""
    file = FileDescriptorProto()
    _ALPHA.CopyToProto(file)
    file.name = "grpc/reflection/v1/reflection.proto"
    file.package = _SERVICE.rpartition(".")[0]
    file.ClearField("options")
    for message in file.message_type:
        for field in filter(lambda field: field.type_name, message.field):
            field.type_name = field.type_name.replace(".v1alpha.", ".v1.")
    for service in file.service:
        for method in service.method:
            method.input_type = method.input_type.replace(".v1alpha.", ".v1.")
            method.output_type = method.output_type.replace(".v1alpha.", ".v1.")
    return file
