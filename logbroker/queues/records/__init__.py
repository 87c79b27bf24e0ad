"""Records from the log: fetching, decoding and caching them.

It knows `model` and `priority`. Begin with `fetch`.
"""
