"""Dead letters: sending them, finding them, and redriving them.

The modules here import `machine` and `records`. Begin with `sender`.
"""
