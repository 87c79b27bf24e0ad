"""Segment tools, benchmarks, experiments, and backups of the metadata store.

They use the public clients, and `storage` to read files. Begin with the folder of the command.
"""
