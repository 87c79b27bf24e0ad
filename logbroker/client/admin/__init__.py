"""Creates, describes and alters topics, groups and queue groups.

It uses `transport` and `runtime`. Begin reading with `admin`.
"""
