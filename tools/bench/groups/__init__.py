"""Benchmarks of consumer groups.

Begin with `measurements`.
"""
