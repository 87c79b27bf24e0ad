"""The parts that every client uses: lifetime, argument checks, calls of handlers, forks, the loop of synchronous
clients.

It uses no API of the broker. Begin reading with `lifetime`.
"""
