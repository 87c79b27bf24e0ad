"""Records out of the log: fetched, decoded, kept for a while.

It knows `model` and `priority`. Begin with `fetch`.
"""
