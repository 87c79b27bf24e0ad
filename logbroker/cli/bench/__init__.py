"""`logbroker bench`: benchmarks.

Begin with `commands`.
"""
