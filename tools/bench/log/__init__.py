"""Benchmarks of the log.

Begin with `recovery`.
"""
