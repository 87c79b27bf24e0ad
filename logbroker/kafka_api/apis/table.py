"""The table of all APIs that are served."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from logbroker.kafka_api.apis import (
    alter_configs,
    api_versions,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    fetch,
    find_coordinator,
    incremental_alter_configs,
    init_producer_id,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
    produce,
    sasl_authenticate,
    sasl_handshake,
)

TABLE: Final = MappingProxyType(
    {
        module.SERVED.api.key: module.SERVED
        for module in (
            alter_configs,
            api_versions,
            create_partitions,
            create_topics,
            delete_records,
            delete_topics,
            describe_cluster,
            describe_configs,
            describe_log_dirs,
            describe_producers,
            describe_topic_partitions,
            fetch,
            find_coordinator,
            incremental_alter_configs,
            init_producer_id,
            list_offsets,
            metadata,
            offset_for_leader_epoch,
            produce,
            sasl_authenticate,
            sasl_handshake,
        )
    }
)
"""All APIs, by their keys."""
