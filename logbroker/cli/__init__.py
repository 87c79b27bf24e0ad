"""The command `logbroker`: one module per command, one folder per command family.

It uses the clients and the tools; nothing imports it. Begin reading with `main`.
"""
