"""The metadata store, and the numbers that are given out once.

It knows the files. Begin with `metadata_store`.
"""
