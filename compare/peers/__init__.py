"""The peers: each starts its own server and speaks by its own client library.

`peer` says what one has to do; `compare.all_peers` lists them.
"""
