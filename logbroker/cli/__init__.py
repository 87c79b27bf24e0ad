"""The command `logbroker`: one module for each command, one folder for each family of them.

It uses the clients, and the tools; nothing imports it. Begin with `main`.
"""
