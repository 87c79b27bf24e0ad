"""The consumer: fetching, positions, membership of a group.

It knows `transport` and `runtime`. Begin with `consumer`, then `fetcher` and `member`.
"""
