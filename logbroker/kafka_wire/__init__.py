"""The Kafka protocol's messages: bytes to structures and back. Pure: no I/O, no connections, no decisions.

`apis` lists the APIs by their keys, and loads the messages of one when they are asked for. `messages/` has one module
per API, generated from Kafka's own definitions in `proto/kafka` by `make kafka-wire`; `codec` and `primitives` are
written by hand. Bytes from the network raise WireFormatError, and no other exception, if anything about them is wrong.

It knows errors only. Begin with `codec`.
"""
