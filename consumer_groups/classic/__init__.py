"""Groups of Kafka's classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup.

The members agree on an assignment among themselves, and the broker passes it on. So nothing here knows of partitions,
except `consumer_protocol`. Begin with `group`, the state machine; `classic_coordinator` is the code around it.
"""
