"""Groups of Kafka's classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The members agree on an assignment among themselves, and the broker passes it on; so nothing here knows of partitions.
Begin with `group`, the machine; `classic_coordinator` is the shell around it.
"""
