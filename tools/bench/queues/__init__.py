"""Benchmarks of queue groups.

Begin with `measurements`.
"""
