"""The table of all APIs that are served."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from logbroker.kafka_api.apis import (
    api_versions,
    fetch,
    find_coordinator,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)
from logbroker.kafka_api.apis.admin import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    incremental_alter_configs,
)
from logbroker.kafka_api.apis.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)

TABLE: Final = MappingProxyType(
    {
        module.SERVED.api.key: module.SERVED
        for module in (
            api_versions,
            fetch,
            find_coordinator,
            init_producer_id,
            list_offsets,
            metadata,
            offset_for_leader_epoch,
            produce,
            sasl_authenticate,
            sasl_handshake,
            alter_configs,
            create_partitions,
            create_topics,
            delete_records,
            delete_topics,
            describe_cluster,
            describe_configs,
            describe_log_dirs,
            describe_producers,
            describe_topic_partitions,
            incremental_alter_configs,
            consumer_group_describe,
            consumer_group_heartbeat,
            delete_groups,
            describe_groups,
            heartbeat,
            join_group,
            leave_group,
            list_groups,
            offset_commit,
            offset_delete,
            offset_fetch,
            sync_group,
        )
    }
)
"""All APIs, by their keys."""
