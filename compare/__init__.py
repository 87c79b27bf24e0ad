"""logbroker beside what people would pick instead: the same workload on each, their real servers started in turn.

It runs from a checkout (`make compare`), uses what a program may use of logbroker, and is no part of the package.
Begin with `run`; a peer is a module of `peers`.
"""
