"""The metadata store, and the file of numbers that must never repeat.

It imports only `errors`, `private_files` and the file access of `storage` (`files`, `handles`, `system_calls`). Begin
with `metadata_store`.
"""
