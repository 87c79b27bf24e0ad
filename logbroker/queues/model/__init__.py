"""Plain values of queue groups: settings, record ids, lanes, messages.

They know nothing else of queue groups. Begin with `messages`.
"""
