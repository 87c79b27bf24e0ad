"""What every client stands on: its lifetime, arguments, handlers, forks, the loop of synchronous ones.

It knows no API. Begin with `lifetime`.
"""
