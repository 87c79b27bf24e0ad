"""The log and the state of groups on an existing cluster that speaks Kafka's protocol.

It implements the two interfaces of `logbroker.engine` beside `local_engine`, and keeps nothing that lasts on this
machine. Begin with `connection.link`, then read `state.state_partition` and `homes`.
"""
