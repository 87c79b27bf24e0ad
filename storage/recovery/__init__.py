"""Recovery: what a start finds, checks, cuts and makes anew.

It knows segments and checkpoints. Begin with `partition`.
"""
