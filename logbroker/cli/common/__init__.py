"""The common parts of commands: arguments, options, input and output, stops, child processes.

It knows no command. Begin with `arguments` and `lines`.
"""
