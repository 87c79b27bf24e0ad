"""The metadata store, and the file of numbers that must never repeat.

It knows the files. Begin with `metadata_store`.
"""
