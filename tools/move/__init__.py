"""Moves a data directory to a cluster: topics with their records at the same offsets, and groups with their state.

Begin reading with `move`.
"""
