"""The listener for Kafka clients: the Kafka protocol, over the same log as gRPC. Experimental; off by default.

`server` listens, `connection` takes requests off the wire and answers them in their order, `dispatch` finds the API of
a request, and `apis/` has one module per API. Messages are read and written by `logbroker.kafka_wire`.

Begin with `apis/produce`, then `connection`.
"""
