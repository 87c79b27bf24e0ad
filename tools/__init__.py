"""Segment tools, benchmarks, experiments, and backups of the metadata store.

They use what users use, and `storage` where they look into files. Begin with the folder of the command.
"""
