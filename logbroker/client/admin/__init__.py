"""Topics, groups and queue groups: made, described, changed.

It knows `transport` and `runtime`. Begin with `admin`.
"""
