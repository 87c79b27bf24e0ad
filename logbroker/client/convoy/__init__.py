"""The convoy: works off the records of many keys at once, in order per key, in the memory of one program.

Begin with `lanes`, the state machine without I/O; `track` knows what is done in one partition, and `done_offsets`
writes that down beside a committed offset. `feeds` take records from a source; `convoy` runs the program's function.
"""
