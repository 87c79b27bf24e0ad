"""The synchronous twins of the clients, over one background loop.

They use all other rooms. Begin reading with `producer`; `logbroker.client.sync` has the public names.
"""
