"""Record batches and records: the codec, headers, keys. Pure, and fast.

It knows errors and types only. Begin with `codec`.
"""
