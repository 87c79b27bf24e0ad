"""The synchronous twins of the clients, over one background loop.

It knows all other rooms. Begin with `producer`; `logbroker.client.sync` has the names.
"""
