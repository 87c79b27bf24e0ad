"""Looking into segments without a broker: list, dump, verify, count, search; and, on request, mend.

What is wrong with given bytes is decided by modules without I/O (`batch_checks`, `index_checks`, `partition_checks`,
`key_counts`); the others read files, in windows, and hand what they find to whoever shows it. Only `mend` writes.
Works on the directory of a live broker, of a stopped one, and of Kafka.
"""
