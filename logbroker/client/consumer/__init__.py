"""The consumer: fetching, positions, membership of a group.

It uses `transport` and `runtime`. Begin reading with `consumer`, then `fetcher` and `member`.
"""
