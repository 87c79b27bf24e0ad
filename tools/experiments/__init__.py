"""Experiments that show what order costs. They measure real workers on a real broker, and report in pictures and
words."""
