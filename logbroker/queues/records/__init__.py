"""Records from the log: fetching, decoding and caching them.

The modules here import `model` and `priority`. Begin with `fetch`.
"""
