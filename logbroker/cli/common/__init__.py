"""The parts that commands share: arguments, options, input and output, stops, child processes.

They use no command. Begin reading with `arguments` and `lines`.
"""
