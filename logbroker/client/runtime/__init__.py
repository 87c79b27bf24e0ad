"""The base of every client: lifetime, arguments, handlers, forks, and the loop of synchronous clients.

It knows no API. Begin with `lifetime`.
"""
