"""Members that have no stream, but send heartbeats: Kafka clients with the consumer protocol (KIP-848,
`group.protocol=consumer`).

They are members of the same state machine as the members with streams (`consumer_groups.group`), so both kinds may
share a group. Begin with `member`.
"""
