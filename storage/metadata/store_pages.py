"""The pages of LMDB's file, checked before LMDB maps them.

LMDB trusts its pages: if the file was cut, the process ends by SIGBUS; a zeroed page ends it by an assertion; a flipped
pointer may do either, or make a search loop for ever. So the whole tree is checked first, with plain reads: both meta
pages, each branch, leaf and overflow page that the newest snapshot reaches, the order of the keys, and the list of free
pages, which must not be in use. The values are not checked: each has its own CRC.

The layout is that of LMDB 0.9 (data version 1), in the machine's byte order, with 64-bit page numbers:

    page     number (8), pad (2), flags (2), lower (2), upper (2); of an overflow page: number, pad, flags, pages (4)
    meta     page header, magic (4), version (4), address (8), map size (8), two trees, last page (8), transaction (8)
    tree     pad (4; of the first one: the page size), flags (2), depth (2), counts (8 each): branch pages, leaf pages,
             overflow pages, entries; root page (8)
    node     low (2), high (2), flags (2), key size (2), key, value; a branch's page number is in low, high and flags
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Final, NamedTuple

from logbroker.errors import CorruptLogError
from logbroker.storage.files import open_regular
from logbroker.storage.system_calls import pread

_MAGIC: Final = 0xBEEFC0DE
_VERSION: Final = 1
_PAGE: Final = struct.Struct("=QHHHH")
_META: Final = struct.Struct("=IIQQ")
_TREE: Final = struct.Struct("=IHHQQQQQ")
_META_END: Final = struct.Struct("=QQ")
_NODE: Final = struct.Struct("=HHHH")
_NUMBER: Final = struct.Struct("=Q")
_META_BYTES: Final = _PAGE.size + _META.size + 2 * _TREE.size + _META_END.size
_HEADER_BYTES: Final = _PAGE.size
_NODE_BYTES: Final = _NODE.size

_BRANCH: Final = 1
_LEAF: Final = 2
_OVERFLOW: Final = 4
_META_FLAG: Final = 8
_IN_OVERFLOW_PAGES: Final = 1
_IS_TREE: Final = 2
_INTEGER_KEYS: Final = 8
"""Flag of the tree of free pages; no other tree has a flag."""
_NO_PAGE: Final = (1 << 64) - 1
_MIN_PAGE_BYTES: Final = 512
_MAX_PAGE_BYTES: Final = 1 << 15
_MAX_KEY_BYTES: Final = 511
_MAX_DEPTH: Final = 32
_MAX_MAP_BYTES: Final = 1 << 47
_IN_USE: Final = 1
_FREE: Final = 2

HARMLESS_COMMITS: Final = 1
"""Number of commits that may end after a snapshot before its pages may be overwritten. The commit that follows them
does not overwrite any either. Once it has ended, a further one may overwrite pages at any moment."""
_LIVE_TRIES: Final = 5
_META_READS: Final = 100
"""Maximum number of reads of a meta page until two successive reads are equal. Commits are never so fast for so
long."""


class _Tree(NamedTuple):
    flags: int
    depth: int
    branch_pages: int
    leaf_pages: int
    overflow_pages: int
    entries: int
    root: int


class _Meta(NamedTuple):
    page_bytes: int
    map_bytes: int
    free: _Tree
    main: _Tree
    last_page: int
    transaction: int


class _DamageError(Exception):
    """Raised for damage; its text says where and what."""


def check_pages(path: Path, tables: Collection[str], *, live: bool = False) -> None:
    """Check LMDB's file at `path`; an empty file is valid. Reads the pages in use, without the values. `tables` are the
    names that the tables in it may have.

    `live`: a broker may write to it meanwhile. If pages of the snapshot may have been overwritten, apparent damage is
    checked again. A store that changes faster than it can be read is accepted.

    Raises CorruptLogError with the page, and OSError.
    """
    if _NUMBER.size != struct.calcsize("P"):
        return  # another layout: page numbers have the size of a pointer
    fd = open_regular(path)
    try:
        for _ in range(_LIVE_TRIES if live else 1):
            walk = _Walk(fd, tables)
            try:
                walk.run()
            except _DamageError as error:
                if not live or not _has_moved(fd, walk.transaction):
                    raise CorruptLogError(
                        f"{path} is damaged: {error}; stop the broker and restore a backup (logbroker meta restore)"
                    ) from None
            else:
                return
    finally:
        os.close(fd)


def _has_moved(fd: int, transaction: int) -> bool:
    try:
        return _newest_meta(fd).transaction - transaction > HARMLESS_COMMITS
    except _DamageError:
        return False


def _newest_meta(fd: int) -> _Meta:
    first = _read_meta(fd, 0, 0)
    second = _read_meta(fd, 1, first.page_bytes)
    for _ in range(_META_READS):
        # If commits come between the two reads, the pages may differ by more than they ever do on disk.
        before, first = first, _read_meta(fd, 0, 0)
        if first == before:
            break
        second = _read_meta(fd, 1, first.page_bytes)
    if first.page_bytes != second.page_bytes:
        raise _DamageError(f"its two meta pages name page sizes of {first.page_bytes} and {second.page_bytes} bytes")
    if abs(first.transaction - second.transaction) > 1:
        # Commits alternate between the two. A flipped bit here would take the store back to an old snapshot.
        raise _DamageError(f"its two meta pages are of transactions {first.transaction} and {second.transaction}")
    return first if first.transaction > second.transaction else second


def _read_meta(fd: int, number: int, position: int) -> _Meta:
    content = pread(fd, _META_BYTES, position)
    for _ in range(_META_READS):
        # A read during a commit may mix the trees of the previous snapshot with the number of the new one.
        before, content = content, pread(fd, _META_BYTES, position)
        if content == before:
            break
    if len(content) < _META_BYTES:
        raise _DamageError(f"it ends in meta page {number}, at byte {position + len(content)}")
    _, _, flags, _, _ = _PAGE.unpack_from(content)
    at = _PAGE.size
    magic, version, _, map_bytes = _META.unpack_from(content, at)
    at += _META.size
    trees = [_TREE.unpack_from(content, at + index * _TREE.size) for index in range(2)]
    last_page, transaction = _META_END.unpack_from(content, at + 2 * _TREE.size)
    if not flags & _META_FLAG or magic != _MAGIC or version != _VERSION:
        raise _DamageError(f"meta page {number} is none of LMDB, format {_VERSION}")
    page_bytes = trees[0][0]
    if not _MIN_PAGE_BYTES <= page_bytes <= _MAX_PAGE_BYTES or page_bytes & (page_bytes - 1):
        raise _DamageError(f"meta page {number} names a page size of {page_bytes} bytes")
    if map_bytes > _MAX_MAP_BYTES:
        raise _DamageError(f"meta page {number} names a map of {map_bytes} bytes")
    free, main = (_Tree(*tree[1:]) for tree in trees)
    return _Meta(page_bytes, map_bytes, free, main, last_page, transaction)


class _Walk:
    """One walk through the newest snapshot."""

    def __init__(self, fd: int, tables: Collection[str]) -> None:
        self._fd = fd
        self._tables = {name.encode() for name in tables}
        self.transaction = 0
        self._page_bytes = 0
        self._last_page = 0
        self._file_bytes = 0
        self._seen = bytearray()
        """Use of each page found so far (in use or free), by page number; 0: not found yet."""
        self._free_behind: set[int] = set()
        """Free pages beyond the end of the file: they were never written."""

    def run(self) -> None:
        """Walk the snapshot. Raises _DamageError."""
        if not os.fstat(self._fd).st_size:
            return
        meta = _newest_meta(self._fd)
        # The size is read after the meta pages: a commit extends the file before it writes its meta page.
        self._file_bytes = os.fstat(self._fd).st_size
        self.transaction, self._page_bytes, self._last_page = meta.transaction, meta.page_bytes, meta.last_page
        pages = -(-self._file_bytes // self._page_bytes)
        self._seen = bytearray(pages)
        self._seen[:2] = bytes([_IN_USE]) * 2
        if meta.main.flags:
            raise _DamageError(f"the main tree has flags {meta.main.flags:#x}")
        if meta.free.flags != _INTEGER_KEYS:
            raise _DamageError(f"the tree of free pages has flags {meta.free.flags:#x}")
        self._walk(meta.main, self._table)
        self._walk(meta.free, self._free_pages)
        if meta.last_page >= pages and meta.last_page not in self._free_behind:
            raise _DamageError(
                f"its last page is {meta.last_page}, but the file ends at byte {self._file_bytes}, in page {pages - 1}"
            )

    def _table(self, key: bytes, flags: int, value: bytes) -> None:
        if flags != _IS_TREE or len(value) != _TREE.size:
            raise _DamageError(f"the entry {key!r} of the main tree is no table")
        if key not in self._tables:
            raise _DamageError(f"the main tree has a table {key!r}, which is none of logbroker's")
        tree = _Tree(*_TREE.unpack(value)[1:])
        if tree.flags:
            raise _DamageError(f"table {key!r} has flags {tree.flags:#x}")
        self._walk(tree, None)

    def _free_pages(self, key: bytes, flags: int, value: bytes) -> None:
        (transaction,) = _NUMBER.unpack(key)
        count = _NUMBER.unpack_from(value)[0] if len(value) >= _NUMBER.size else -1
        if flags & ~_IN_OVERFLOW_PAGES or not 0 <= count < len(value) // _NUMBER.size:
            raise _DamageError(f"the list of pages freed by transaction {transaction} is cut")
        before = self._last_page + 1
        for number in struct.unpack_from(f"={count}Q", value, _NUMBER.size):
            if not 2 <= number < before:
                raise _DamageError(f"the list of pages freed by transaction {transaction} names page {number}")
            self._meet(number, _FREE)
            before = number

    def _meet(self, number: int, what: int) -> None:
        if number >= len(self._seen):
            if what == _IN_USE:
                raise _DamageError(
                    f"page {number} is in use, but the file ends at byte {self._file_bytes},"
                    f" in page {len(self._seen) - 1}: it was cut"
                )
            if number in self._free_behind:
                raise _DamageError(f"page {number} is free twice")
            self._free_behind.add(number)
            return
        if self._seen[number]:
            how = "in use twice" if self._seen[number] == what == _IN_USE else "free and met before"
            raise _DamageError(f"page {number} is {how}")
        self._seen[number] = what

    # --- walking a tree ---

    def _walk(self, tree: _Tree, entry: Callable[[bytes, int, bytes], None] | None) -> None:
        """Walk a tree; `entry` is called with each key, the flags of its node, and the value."""
        if tree.root == _NO_PAGE:
            if any(tree[1:-1]):
                raise _DamageError(f"a tree of depth {tree.depth} with {_counts(tree)} has no root")
            return
        if not 1 <= tree.depth <= _MAX_DEPTH:
            raise _DamageError(f"a tree has depth {tree.depth}")
        branch_pages = leaf_pages = overflow_pages = entries = 0
        has_integer_keys = tree.flags == _INTEGER_KEYS
        # Page, levels below it, and the bounds of its keys (at least, below); None: no bound.
        todo: list[tuple[int, int, bytes | None, bytes | None]] = [(tree.root, tree.depth - 1, None, None)]
        while todo:
            number, levels, least, below = todo.pop()
            # LMDB itself requires two entries in a branch, except in the tree of free pages.
            page, pointers = self._page(
                number, _BRANCH if levels else _LEAF, 2 if levels and not has_integer_keys else 1
            )
            keys, nodes = self._nodes(number, page, pointers, is_branch=bool(levels))
            if has_integer_keys:
                keys = [self._as_integer(number, key, index, bool(levels)) for index, key in enumerate(keys)]
            if levels:
                keys[0] = least or b""
            self._check_order(number, keys, least, below)
            if levels:
                branch_pages += 1
                # From the right, so that the leftmost is walked first.
                for index in range(len(nodes) - 1, -1, -1):
                    child = nodes[index][0] | nodes[index][1] << 16 | nodes[index][2] << 32
                    after = keys[index + 1] if index + 1 < len(keys) else below
                    todo.append((child, levels - 1, keys[index] if index else least, after))
                continue
            leaf_pages += 1
            entries += len(nodes)
            for pointer, (low, high, flags, key_size) in zip(pointers, nodes, strict=True):
                if not flags and entry is None:
                    continue
                size = low | high << 16
                overflow_pages += self._leaf_node(number, page, pointer, size, flags, key_size, entry)
        found = tree._replace(
            branch_pages=branch_pages, leaf_pages=leaf_pages, overflow_pages=overflow_pages, entries=entries
        )
        if found != tree:
            raise _DamageError(f"the tree of page {tree.root} should have {_counts(tree)}, but has {_counts(found)}")

    def _page(self, number: int, kind: int, least_count: int) -> tuple[bytes, tuple[int, ...]]:
        """Read a branch or leaf page. Return the page, and the positions of its nodes."""
        if not 2 <= number <= self._last_page:
            raise _DamageError(f"a tree leads to page {number}, the last one is {self._last_page}")
        self._meet(number, _IN_USE)
        page = pread(self._fd, self._page_bytes, number * self._page_bytes)
        if len(page) < self._page_bytes:
            raise _DamageError(f"the file ends in page {number}, which is in use, at byte {self._file_bytes}")
        told, _, flags, lower, upper = _PAGE.unpack_from(page)
        if told != number or flags != kind:
            name = "branch" if kind == _BRANCH else "leaf"
            raise _DamageError(f"page {number} should be a {name}, but says it is page {told} with flags {flags:#x}")
        count = (lower - _HEADER_BYTES) >> 1
        if lower & 1 or count < least_count or not lower <= upper <= self._page_bytes:
            raise _DamageError(f"page {number} names bounds {lower} and {upper} of its free room")
        pointers = struct.unpack_from(f"={count}H", page, _HEADER_BYTES)
        if min(pointers) < upper or max(pointers) > self._page_bytes - _NODE_BYTES:
            raise _DamageError(f"an entry of page {number} lies outside of its room")
        return page, pointers

    def _nodes(
        self, number: int, page: bytes, pointers: tuple[int, ...], *, is_branch: bool
    ) -> tuple[list[bytes], list[tuple[int, int, int, int]]]:
        """Return the keys of a page, and the headers of its nodes."""
        keys, nodes = [], []
        unpack = _NODE.unpack_from
        page_bytes = self._page_bytes
        used = 0
        for pointer in pointers:
            low, high, flags, key_size = node = unpack(page, pointer)
            start = pointer + _NODE_BYTES
            end = start + key_size
            keys.append(page[start:end])
            nodes.append(node)
            if not is_branch:
                if flags & _IN_OVERFLOW_PAGES:
                    end += _NUMBER.size
                else:
                    end += low | high << 16
                if not 0 < key_size <= _MAX_KEY_BYTES:
                    raise _DamageError(f"page {number} has a key of {key_size} bytes")
            if end > page_bytes:
                raise _DamageError(f"an entry of page {number} goes beyond its end")
            used += (end - pointer + 1) & -2
        # LMDB leaves no room between entries, nor between them and the free room.
        upper = _PAGE.unpack_from(page)[4]
        if used != page_bytes - upper or min(pointers) != upper:
            raise _DamageError(f"the entries of page {number} do not fill their room")
        return keys, nodes

    def _as_integer(self, number: int, key: bytes, index: int, is_branch: bool) -> bytes:
        """Return an integer key in big-endian order, which sorts as bytes do."""
        if len(key) != _NUMBER.size:
            if is_branch and not index:
                return b""  # this key has no meaning
            raise _DamageError(f"a key of page {number}, in the tree of free pages, has {len(key)} bytes")
        return int(_NUMBER.unpack(key)[0]).to_bytes(_NUMBER.size, "big")

    def _check_order(self, number: int, keys: list[bytes], least: bytes | None, below: bytes | None) -> None:
        for index in range(1, len(keys)):
            if keys[index - 1] >= keys[index]:
                raise _DamageError(f"the keys of page {number} are not in order")
        if (least is not None and keys[0] < least) or (below is not None and keys[-1] >= below):
            raise _DamageError(f"page {number} has keys that belong elsewhere")

    def _leaf_node(
        self,
        number: int,
        page: bytes,
        pointer: int,
        size: int,
        flags: int,
        key_size: int,
        entry: Callable[[bytes, int, bytes], None] | None,
    ) -> int:
        """Check an entry of a leaf, and pass it to `entry`. Return the number of its overflow pages."""
        overflow_pages = 0
        start = pointer + _NODE_BYTES + key_size
        value = page[start : start + size]
        if flags & _IN_OVERFLOW_PAGES:
            (first,) = _NUMBER.unpack_from(page, start)
            position, overflow_pages = self._overflow(first, size)
            value = pread(self._fd, size, position) if entry is not None else b""
        if entry is not None:
            entry(page[pointer + _NODE_BYTES : start], flags, value)
        elif flags != _IN_OVERFLOW_PAGES:
            raise _DamageError(f"an entry of page {number} has flags {flags:#x}")
        return overflow_pages

    def _overflow(self, first: int, size: int) -> tuple[int, int]:
        """Check the pages of a large value. Return the position of the value, and the number of pages."""
        if not 2 <= first <= self._last_page:
            raise _DamageError(f"a value lies in page {first}, the last one is {self._last_page}")
        position = first * self._page_bytes
        header = pread(self._fd, _HEADER_BYTES, position)
        if len(header) < _HEADER_BYTES or position + _HEADER_BYTES + size > self._file_bytes:
            raise _DamageError(
                f"the value in page {first} goes beyond the end of the file, at byte {self._file_bytes}: it was cut"
            )
        told, _, flags, _, _ = _PAGE.unpack(header)
        count = struct.unpack_from("=I", header, _HEADER_BYTES - 4)[0]
        needed = -(-(_HEADER_BYTES + size) // self._page_bytes)
        if told != first or flags != _OVERFLOW or not needed <= count <= self._last_page + 1 - first:
            raise _DamageError(f"page {first} does not begin a value of {size} bytes")
        for number in range(first, first + count):
            self._meet(number, _IN_USE)
        return position + _HEADER_BYTES, count


def _counts(tree: _Tree) -> str:
    pages = f"{tree.branch_pages}, {tree.leaf_pages} and {tree.overflow_pages} branch, leaf and overflow pages"
    return f"{tree.entries} entries in {pages}"
