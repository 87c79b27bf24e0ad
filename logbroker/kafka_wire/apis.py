"""The APIs by their keys.

Generated from Apache Kafka's message definitions (proto/kafka) by `make kafka-wire`; do not edit.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from logbroker.kafka_wire.codec import Api

PRODUCE: Final = Api(
    key=0,
    name="Produce",
    module="produce",
    first_version=3,
    last_version=13,
    last_stable_version=13,
    first_flexible_version=9,
)
FETCH: Final = Api(
    key=1,
    name="Fetch",
    module="fetch",
    first_version=4,
    last_version=18,
    last_stable_version=18,
    first_flexible_version=12,
)
LIST_OFFSETS: Final = Api(
    key=2,
    name="ListOffsets",
    module="list_offsets",
    first_version=1,
    last_version=11,
    last_stable_version=11,
    first_flexible_version=6,
)
METADATA: Final = Api(
    key=3,
    name="Metadata",
    module="metadata",
    first_version=0,
    last_version=13,
    last_stable_version=13,
    first_flexible_version=9,
)
OFFSET_COMMIT: Final = Api(
    key=8,
    name="OffsetCommit",
    module="offset_commit",
    first_version=2,
    last_version=10,
    last_stable_version=10,
    first_flexible_version=8,
)
OFFSET_FETCH: Final = Api(
    key=9,
    name="OffsetFetch",
    module="offset_fetch",
    first_version=1,
    last_version=10,
    last_stable_version=10,
    first_flexible_version=6,
)
FIND_COORDINATOR: Final = Api(
    key=10,
    name="FindCoordinator",
    module="find_coordinator",
    first_version=0,
    last_version=6,
    last_stable_version=6,
    first_flexible_version=3,
)
JOIN_GROUP: Final = Api(
    key=11,
    name="JoinGroup",
    module="join_group",
    first_version=0,
    last_version=9,
    last_stable_version=9,
    first_flexible_version=6,
)
HEARTBEAT: Final = Api(
    key=12,
    name="Heartbeat",
    module="heartbeat",
    first_version=0,
    last_version=4,
    last_stable_version=4,
    first_flexible_version=4,
)
LEAVE_GROUP: Final = Api(
    key=13,
    name="LeaveGroup",
    module="leave_group",
    first_version=0,
    last_version=5,
    last_stable_version=5,
    first_flexible_version=4,
)
SYNC_GROUP: Final = Api(
    key=14,
    name="SyncGroup",
    module="sync_group",
    first_version=0,
    last_version=5,
    last_stable_version=5,
    first_flexible_version=4,
)
DESCRIBE_GROUPS: Final = Api(
    key=15,
    name="DescribeGroups",
    module="describe_groups",
    first_version=0,
    last_version=6,
    last_stable_version=6,
    first_flexible_version=5,
)
LIST_GROUPS: Final = Api(
    key=16,
    name="ListGroups",
    module="list_groups",
    first_version=0,
    last_version=5,
    last_stable_version=5,
    first_flexible_version=3,
)
SASL_HANDSHAKE: Final = Api(
    key=17,
    name="SaslHandshake",
    module="sasl_handshake",
    first_version=0,
    last_version=1,
    last_stable_version=1,
    first_flexible_version=None,
)
API_VERSIONS: Final = Api(
    key=18,
    name="ApiVersions",
    module="api_versions",
    first_version=0,
    last_version=5,
    last_stable_version=5,
    first_flexible_version=3,
)
CREATE_TOPICS: Final = Api(
    key=19,
    name="CreateTopics",
    module="create_topics",
    first_version=2,
    last_version=7,
    last_stable_version=7,
    first_flexible_version=5,
)
DELETE_TOPICS: Final = Api(
    key=20,
    name="DeleteTopics",
    module="delete_topics",
    first_version=1,
    last_version=6,
    last_stable_version=6,
    first_flexible_version=4,
)
DELETE_RECORDS: Final = Api(
    key=21,
    name="DeleteRecords",
    module="delete_records",
    first_version=0,
    last_version=2,
    last_stable_version=2,
    first_flexible_version=2,
)
INIT_PRODUCER_ID: Final = Api(
    key=22,
    name="InitProducerId",
    module="init_producer_id",
    first_version=0,
    last_version=6,
    last_stable_version=5,
    first_flexible_version=2,
)
OFFSET_FOR_LEADER_EPOCH: Final = Api(
    key=23,
    name="OffsetForLeaderEpoch",
    module="offset_for_leader_epoch",
    first_version=2,
    last_version=4,
    last_stable_version=4,
    first_flexible_version=4,
)
DESCRIBE_CONFIGS: Final = Api(
    key=32,
    name="DescribeConfigs",
    module="describe_configs",
    first_version=1,
    last_version=4,
    last_stable_version=4,
    first_flexible_version=4,
)
ALTER_CONFIGS: Final = Api(
    key=33,
    name="AlterConfigs",
    module="alter_configs",
    first_version=0,
    last_version=2,
    last_stable_version=2,
    first_flexible_version=2,
)
DESCRIBE_LOG_DIRS: Final = Api(
    key=35,
    name="DescribeLogDirs",
    module="describe_log_dirs",
    first_version=1,
    last_version=5,
    last_stable_version=5,
    first_flexible_version=2,
)
SASL_AUTHENTICATE: Final = Api(
    key=36,
    name="SaslAuthenticate",
    module="sasl_authenticate",
    first_version=0,
    last_version=2,
    last_stable_version=2,
    first_flexible_version=2,
)
CREATE_PARTITIONS: Final = Api(
    key=37,
    name="CreatePartitions",
    module="create_partitions",
    first_version=0,
    last_version=3,
    last_stable_version=3,
    first_flexible_version=2,
)
DELETE_GROUPS: Final = Api(
    key=42,
    name="DeleteGroups",
    module="delete_groups",
    first_version=0,
    last_version=3,
    last_stable_version=3,
    first_flexible_version=2,
)
INCREMENTAL_ALTER_CONFIGS: Final = Api(
    key=44,
    name="IncrementalAlterConfigs",
    module="incremental_alter_configs",
    first_version=0,
    last_version=1,
    last_stable_version=1,
    first_flexible_version=1,
)
OFFSET_DELETE: Final = Api(
    key=47,
    name="OffsetDelete",
    module="offset_delete",
    first_version=0,
    last_version=0,
    last_stable_version=0,
    first_flexible_version=None,
)
DESCRIBE_CLUSTER: Final = Api(
    key=60,
    name="DescribeCluster",
    module="describe_cluster",
    first_version=0,
    last_version=2,
    last_stable_version=2,
    first_flexible_version=0,
)
DESCRIBE_PRODUCERS: Final = Api(
    key=61,
    name="DescribeProducers",
    module="describe_producers",
    first_version=0,
    last_version=0,
    last_stable_version=0,
    first_flexible_version=0,
)
CONSUMER_GROUP_HEARTBEAT: Final = Api(
    key=68,
    name="ConsumerGroupHeartbeat",
    module="consumer_group_heartbeat",
    first_version=0,
    last_version=1,
    last_stable_version=1,
    first_flexible_version=0,
)
CONSUMER_GROUP_DESCRIBE: Final = Api(
    key=69,
    name="ConsumerGroupDescribe",
    module="consumer_group_describe",
    first_version=0,
    last_version=1,
    last_stable_version=1,
    first_flexible_version=0,
)
DESCRIBE_TOPIC_PARTITIONS: Final = Api(
    key=75,
    name="DescribeTopicPartitions",
    module="describe_topic_partitions",
    first_version=0,
    last_version=0,
    last_stable_version=0,
    first_flexible_version=0,
)

APIS: Final = MappingProxyType(
    {
        api.key: api
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            OFFSET_COMMIT,
            OFFSET_FETCH,
            FIND_COORDINATOR,
            JOIN_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            SYNC_GROUP,
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            DELETE_RECORDS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            DESCRIBE_CONFIGS,
            ALTER_CONFIGS,
            DESCRIBE_LOG_DIRS,
            SASL_AUTHENTICATE,
            CREATE_PARTITIONS,
            DELETE_GROUPS,
            INCREMENTAL_ALTER_CONFIGS,
            OFFSET_DELETE,
            DESCRIBE_CLUSTER,
            DESCRIBE_PRODUCERS,
            CONSUMER_GROUP_HEARTBEAT,
            CONSUMER_GROUP_DESCRIBE,
            DESCRIBE_TOPIC_PARTITIONS,
        )
    }
)
"""All of them, by their keys."""
