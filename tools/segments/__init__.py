"""Reads segments without a broker: list, dump, verify, count, search. Repairs them on request.

Modules without I/O (`batch_chain`, `batch_checks`, `index_checks`, `partition_checks`, `key_counts`) check and count
what they are given. The others read files, in windows, and return what they find. Only `mend` and `partition_repair`
write. All work on the directories of logbroker and of Kafka; those that only read, even while a broker runs.
"""
