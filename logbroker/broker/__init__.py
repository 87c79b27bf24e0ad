"""The composition root: it puts together the engine, the topics and the groups.

Begin with `broker`.
"""
