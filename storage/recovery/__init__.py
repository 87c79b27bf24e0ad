"""Recovery: checking, cutting and rebuilding a partition's files at a start.

It knows segments and checkpoints. Begin with `partition`.
"""
