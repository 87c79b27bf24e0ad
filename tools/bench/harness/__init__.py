"""The common parts of benchmarks: server processes, load and results.

It does not import the other benchmarks. Begin with `measure`.
"""
