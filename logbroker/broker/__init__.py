"""The composition root: topics, their growth, and the engine that keeps them.

It puts together what is below. Begin with `broker`.
"""
