"""The common parts of benchmarks: brokers as processes, load, figures.

It knows no benchmark. Begin with `measure`.
"""
