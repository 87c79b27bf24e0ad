"""The gateways of a cluster: who is alive, and which of them owns which home.

`gateways` decides, and `membership` writes and reads the heartbeats. Begin with `gateways`.
"""
