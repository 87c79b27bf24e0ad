"""The convoy: works off the records of many keys at once, in order per key, in the memory of one program.

Begin reading with `lanes`, the state machine without I/O. `track` knows which records of one partition are done, and
`done_offsets` encodes them as a text to be stored beside a committed offset. `feeds` take records from a source;
`convoy` runs the program's function.
"""
