"""Experiments that show what order costs: real workers on a real broker, measured, drawn and told in words."""
