"""What benchmarks share: brokers as processes, load, figures.

It knows no benchmark. Begin with `measure`.
"""
