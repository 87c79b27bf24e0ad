"""The metadata store: topics, configs, recovery points, producers and the state of groups, in one LMDB environment with
a few named tables.

LMDB has no checksums, so each value is followed by the CRC-32C of key and value, and the pages are checked before they
are mapped (`store_pages`). One thread writes; writes that are submitted during its sync form the next transaction.
LMDB's errors do not leave this module: callers get errors that say what is wrong with the file, and what to do.
"""

from __future__ import annotations

import errno
import mmap
import os
import queue
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import google_crc32c
import lmdb

from logbroker.errors import CorruptLogError, DataDirError, LogbrokerError, OverloadedError, StorageFailedError
from logbroker.errors.system import advice_for, reason_of
from logbroker.private_files import DIRECTORY_MODE, FILE_MODE
from logbroker.storage.files import RealFiles, kind_name
from logbroker.storage.metadata.store_pages import HARMLESS_COMMITS, check_pages

FORMAT_VERSION: Final = b"1"
TABLES: Final = ("broker", "topics", "partitions", "producers", "state")
MAX_KEY_BYTES: Final = 511
DATA_NAME: Final = "data.mdb"
"""LMDB's file within the store's directory."""
_LOCK_NAME: Final = "lock.mdb"
_RESTORE: Final = ", and restore a backup of the metadata store (logbroker meta restore)"

_FORMAT_KEY: Final = b"format"
_CRC_BYTES: Final = 4
_INITIAL_MAP_BYTES: Final = 1 << 30
_MAX_WAITING: Final = 10_000
_MAX_GROUP: Final = 1_000
_MAX_WRITE_BYTES: Final = 64 * mmap.PAGESIZE
"""Maximum size of a write of LMDB, unless a row is longer."""
_READ_TRIES: Final = 20
_READERS_SECONDS: Final = 10.0
"""Minimum time between two looks for readers that were killed. LMDB keeps the pages of their snapshots until then."""
_FULL_SECONDS: Final = 1.0
"""How long `check_full` refuses after a commit was refused. If the map is still full then, the next commit is refused
again."""

_DAMAGED: Final = (
    lmdb.BadDbiError,
    lmdb.BadTxnError,
    lmdb.BadValsizeError,
    lmdb.CorruptedError,
    lmdb.CursorFullError,
    lmdb.DbsFullError,
    lmdb.IncompatibleError,
    lmdb.InvalidError,
    lmdb.PageFullError,
    lmdb.PageNotFoundError,
    lmdb.PanicError,
    lmdb.VersionMismatchError,
)
"""LMDB errors that mean damaged pages."""

Write = tuple[str, bytes, bytes | None]
"""A write: table, key, and the value, or None to delete the key."""
_Submission = tuple[Sequence[Write], Future[None]]


class MetadataStore:
    """The environment. Reads may run on any thread; `close` it."""

    def __init__(
        self, path: Path, environment: lmdb.Environment, on_failure: Callable[[StorageFailedError], None]
    ) -> None:
        self._path = path
        self._environment = environment
        self._tables = {name: environment.open_db(name.encode()) for name in TABLES}
        self._on_failure = on_failure
        self._failure: StorageFailedError | None = None
        self._full: tuple[OverloadedError, float] | None = None
        """Error and time (monotonic, s) of the last commit, if it was refused because the map is full and cannot grow;
        else None."""
        self._readers_checked_at = 0.0
        """Time (monotonic, s) of the last look for killed readers."""
        # LMDB's map may only be resized while no transaction is open in this process.
        self._resize_lock = threading.Lock()
        self._waiting: queue.SimpleQueue[_Submission | None] = queue.SimpleQueue()
        self._writer = threading.Thread(target=self._write_loop, name="metadata-writer", daemon=True)

    @classmethod
    def open(
        cls, path: Path, *, on_failure: Callable[[StorageFailedError], None], map_bytes: int = _INITIAL_MAP_BYTES
    ) -> MetadataStore:
        """Open or create the store; the caller keeps other writers out.

        Raises CorruptLogError if its pages are damaged, and DataDirError if it cannot be opened or has an unknown
        format version. `on_failure` is called once, on the writer's thread, when a commit has failed; nothing is stored
        after that. `map_bytes` is the initial size of the map; the map doubles whenever it is full.
        """
        is_new = is_missing(path)
        try:
            path.mkdir(DIRECTORY_MODE, parents=True, exist_ok=True)
            if not is_new:
                check_pages(path / DATA_NAME, TABLES)
                _make_lock(path)
            environment = lmdb.open(
                os.fsencode(path), map_size=map_bytes, max_dbs=len(TABLES), sync=True, metasync=True, mode=FILE_MODE
            )
        except (OSError, lmdb.Error) as error:
            raise _failed("open", path, _cause(error, path)) from None
        try:
            store = cls(path, environment, on_failure)
            version = store.get("broker", _FORMAT_KEY)
            if version is None:
                with environment.begin(write=True) as transaction:
                    store._apply(transaction, [("broker", _FORMAT_KEY, FORMAT_VERSION)])
                if is_new:
                    # LMDB syncs its file, but not the names that lead there.
                    files = RealFiles()
                    files.sync_directory(str(path))
                    files.sync_directory(str(path.parent))
            elif version != FORMAT_VERSION:
                raise DataDirError(
                    f"{path} has format version {version.decode(errors='replace')}, this broker knows "
                    f"{FORMAT_VERSION.decode()}; use the version of logbroker that wrote it"
                )
        except (OSError, lmdb.Error) as error:
            environment.close()
            raise _failed("open", path, _cause(error, path)) from None
        except BaseException:
            environment.close()
            raise
        store._writer.start()
        return store

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the committed value. Raises CorruptLogError (its CRC is wrong, or a page is damaged) and
        DataDirError."""
        with self._reading(table) as transaction:
            stored = transaction.get(key)
        return None if stored is None else _checked(self._path, table, key, stored)

    def scan(self, table: str, prefix: bytes = b"") -> list[tuple[bytes, bytes]]:
        """Return all committed keys with this prefix and their values, in key order.

        Raises CorruptLogError and DataDirError, as `get` does.
        """
        found = []
        with self._reading(table) as transaction:
            cursor = transaction.cursor()
            if cursor.set_range(prefix):
                for key, stored in cursor:
                    if not key.startswith(prefix):
                        break
                    found.append((key, _checked(self._path, table, key, stored)))
        return found

    def check_rows(self) -> None:
        """Check the CRC of every row. A flipped bit in a key moves a row to where nobody looks for it, so that the row
        would be missing, and no read would notice.

        Raises CorruptLogError and DataDirError, as `get` does.
        """
        for table in TABLES:
            with self._reading(table) as transaction:
                for key, stored in transaction.cursor():
                    _checked(self._path, table, key, stored)

    @contextmanager
    def _reading(self, table: str) -> Iterator[Any]:
        try:
            with self._resize_lock, _begin_read(self._environment, self._tables[table]) as transaction:
                yield transaction
        except lmdb.Error as error:
            raise _failed(f"read table {table} of", self._path, error) from None

    def submit(self, writes: Sequence[Write]) -> Future[None]:
        """Store these writes, all or none. The future completes when they are synced, or fails with StorageFailedError.

        If the map is full and no address space is left for a larger map, the future fails with OverloadedError, and
        nothing is stored. Submissions are applied in order. Raises OverloadedError if too many wait.
        """
        for _table, key, _value in writes:
            if not 0 < len(key) <= MAX_KEY_BYTES:
                raise ValueError(f"a key has 1 to {MAX_KEY_BYTES} bytes, not {len(key)}")
        if self._waiting.qsize() >= _MAX_WAITING:
            raise OverloadedError(f"{_MAX_WAITING} metadata writes are waiting for the disk; try again later")
        future: Future[None] = Future()
        self._waiting.put((writes, future))
        return future

    def check_full(self) -> None:
        """Raise OverloadedError if a commit was refused a moment ago and none was stored since: the next commits would
        be refused too, unless they delete."""
        full = self._full
        if full is not None and time.monotonic() - full[1] < _FULL_SECONDS:
            raise full[0].anew()

    def close(self) -> None:
        """Store everything submitted, then close."""
        self._waiting.put(None)
        self._writer.join()
        self._environment.close()

    # --- the writer's thread ---------------------------------------------------------------------------------------

    def _write_loop(self) -> None:
        while (first := self._waiting.get()) is not None:
            group = [first]
            closing = False
            while len(group) < _MAX_GROUP and not closing:
                try:
                    submission = self._waiting.get_nowait()
                except queue.Empty:
                    break
                if submission is None:
                    closing = True
                else:
                    group.append(submission)
            self._commit(group)
            if closing:
                return

    def _commit(self, group: list[_Submission]) -> None:
        # Submissions are not stored if their futures were cancelled meanwhile.
        group = [submission for submission in group if submission[1].set_running_or_notify_cancel()]
        writes = [write for submission in group for write in submission[0]]
        refusal: LogbrokerError | None = self._failure
        if refusal is None:
            try:
                self._store(writes)
                self._full = None
            except OverloadedError as error:
                refusal = error.as_value()
                self._full = refusal, time.monotonic()
            except Exception as failure:  # any error: otherwise all later submissions would wait for ever
                cause = _cause(failure, self._path)
                what = f"cannot commit to {self._path / DATA_NAME}: {_reason(cause)}"
                advice = _advice(cause).removesuffix(", then try again")
                refusal = self._failure = StorageFailedError(f"{what}; {advice}, then start the broker again")
                self._on_failure(self._failure)
        for _writes, future in group:
            if refusal is None:
                future.set_result(None)
            else:
                future.set_exception(refusal.anew())

    def _store(self, writes: Sequence[Write]) -> None:
        now = time.monotonic()
        if now - self._readers_checked_at >= _READERS_SECONDS:
            self._environment.reader_check()
            self._readers_checked_at = now
        while True:
            try:
                with self._environment.begin(write=True) as transaction:
                    self._apply(transaction, writes)
                return
            except lmdb.MapFullError:
                if self._environment.reader_check():
                    continue  # A reader that was just killed may have held enough pages.
                larger_bytes = 2 * self._environment.info()["map_size"]
                # LMDB unmaps the old map before it maps the new one, so there must be room for the new map.
                if not _has_room_for(larger_bytes):
                    raise OverloadedError(
                        f"the metadata store {self._path / DATA_NAME} is full at {larger_bytes // 2} bytes, and this"
                        f" process gets no address space to map {larger_bytes}; raise its limit (ulimit -v), or delete"
                        " topics or groups"
                    ) from None
                with self._resize_lock:
                    self._environment.set_mapsize(larger_bytes)

    def _apply(self, transaction: lmdb.Transaction, writes: Sequence[Write]) -> None:
        for table, key, value in writes:
            if value is None:
                transaction.delete(key, db=self._tables[table])
            else:
                transaction.put(key, value + _crc(key, value), db=self._tables[table])


class MetadataReader:
    """Reads committed rows, even while a broker runs; `close` it.

    It registers with LMDB, so that a broker does not overwrite the pages of its snapshots: reading overwritten pages
    would end this process. To register, it has to write the lock file. A stopped store may lack this file, and perhaps
    only the broker's user may write it. The store is then read without a lock. LMDB does not know of such a reader, so
    a broker may overwrite pages of the reader's snapshot: the third commit after the snapshot reuses the pages that the
    first one freed. So reads are short, and are repeated if pages may have been overwritten.
    """

    def __init__(self, path: Path, environment: lmdb.Environment, *, is_registered: bool) -> None:
        self._path = path
        self._environment = environment
        self._is_registered = is_registered
        self._tables: dict[str, Any] = {}

    @classmethod
    def open(cls, path: Path) -> MetadataReader:
        """Open the store in a directory, or a copy of one in a file.

        Raises CorruptLogError if its pages are damaged, and DataDirError if there is no store, it cannot be read, or
        its format version is unknown.
        """
        try:
            check_pages(path / DATA_NAME if path.is_dir() else path, TABLES, live=True)
            environment, is_registered = _open_to_read(path)
        except (OSError, lmdb.Error) as error:
            raise _failed("read", path, error) from None
        reader = cls(path, environment, is_registered=is_registered)
        try:
            if is_registered:
                with suppress(lmdb.Error):
                    environment.reader_check()  # Killed readers may have all of LMDB's slots for readers.
            version = reader.get("broker", _FORMAT_KEY)
            if version != FORMAT_VERSION:
                raise DataDirError(
                    f"{path} has format version {(version or b'none').decode(errors='replace')}, this program knows "
                    f"{FORMAT_VERSION.decode()}; use the version of logbroker that wrote it"
                )
        except BaseException:
            reader.close()
            raise
        return reader

    def close(self) -> None:
        self._environment.close()

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the committed value. Raises CorruptLogError if its CRC does not match, and DataDirError."""
        stored = self._read(table, lambda transaction: transaction.get(key))
        return None if stored is None else _checked(self._path, table, key, stored)

    def scan(self, table: str) -> list[tuple[bytes, bytes]]:
        """Return all rows of a table. Raises CorruptLogError if a CRC does not match, and DataDirError."""
        rows = self._read(table, lambda transaction: list(transaction.cursor()))
        return [(key, _checked(self._path, table, key, stored)) for key, stored in rows or ()]

    def _read(self, table: str, read: Callable[[lmdb.Transaction], Any]) -> Any:
        """Read from one snapshot; return None if the table does not exist."""
        try:
            for _ in range(_READ_TRIES):
                snapshot = 0
                try:
                    if table not in self._tables:
                        self._tables[table] = self._environment.open_db(table.encode(), create=False)
                    with self._environment.begin(db=self._tables[table]) as transaction:
                        snapshot = transaction.id()
                        found = read(transaction)
                except lmdb.NotFoundError:
                    return None
                except lmdb.MapResizedError:
                    self._environment.set_mapsize(0)
                    continue
                except _DAMAGED:
                    if not self._has_moved(snapshot):
                        raise
                    continue
                if not self._has_moved(snapshot):
                    return found
        except lmdb.Error as error:
            raise _failed(f"read table {table} of", self._path, error) from None
        raise DataDirError(f"the metadata store {self._path} changes faster than it can be read; try again")

    def _has_moved(self, snapshot: int) -> bool:
        """Return whether pages of a snapshot may have been overwritten since."""
        if self._is_registered:
            return False
        return bool(self._environment.info()["last_txnid"] - snapshot > HARMLESS_COMMITS)


def _begin_read(environment: lmdb.Environment, table: Any) -> lmdb.Transaction:
    try:
        return environment.begin(db=table)
    except lmdb.ReadersFullError:
        environment.reader_check()  # Killed readers keep their slots.
        return environment.begin(db=table)


def _open_to_read(path: Path) -> tuple[lmdb.Environment, bool]:
    """Open a store, or a copy of a store, to read it. Also return whether the reader is registered with LMDB."""
    # 0: LMDB takes the map size from the file.
    options: dict[str, Any] = {
        "map_size": 0,
        "max_dbs": len(TABLES),
        "readonly": True,
        "create": False,
        "mode": FILE_MODE,
    }
    if (path / _LOCK_NAME).is_file():
        # It may be another user's lock file, or this process may have the store open already.
        with suppress(OSError, lmdb.Error):
            return lmdb.open(os.fsencode(path), **options), True
    return lmdb.open(os.fsencode(path), subdir=path.is_dir(), lock=False, **options), False


def _make_lock(path: Path) -> None:
    """Make the lock file of a store if it is missing, and give it to the owner of the store: LMDB would give it to this
    user, so that a broker of another user could not open the store after a command of root. On a read-only file system,
    LMDB reads without it. Raises OSError."""
    lock = path / _LOCK_NAME
    try:
        fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_EXCL, FILE_MODE)
    except FileExistsError:
        return
    except OSError as error:
        if error.errno == errno.EROFS:
            return
        raise
    try:
        owner = os.stat(path / DATA_NAME)
        # Only root may give files to others. Another user that may write here has always kept the file.
        with suppress(PermissionError):
            os.chown(fd, owner.st_uid, owner.st_gid)
    finally:
        os.close(fd)


def _cause(error: Exception, path: Path) -> Exception:
    """Return the cause of a failed write to the store in a directory. LMDB reports a write that the system cuts short
    as an input/output error (EIO), but where the disk has no room for the write, the disk is full."""
    if not isinstance(error, lmdb.Error) or _number_of(error) != errno.EIO:
        return error
    try:
        disk = os.statvfs(path)
    except OSError:
        return error
    is_full = disk.f_bavail * disk.f_frsize < _MAX_WRITE_BYTES
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)) if is_full else error


def _failed(action: str, path: Path, error: Exception) -> LogbrokerError:
    """Return our error for an error of LMDB or the system. It says which file, why, and what to do."""
    file = path if os.path.isfile(path) else path / DATA_NAME
    kind = CorruptLogError if isinstance(error, _DAMAGED) else DataDirError
    return kind(f"cannot {action} the metadata store {file}: {_reason(error)}; {_advice(error)}")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return reason_of(error)
    # LMDB prefixes its function or the path: "mdb_put: MDB_MAP_FULL: ...", "/path/of/it: Not a directory".
    return str(error).rpartition(": ")[2] or type(error).__name__


def _advice(error: Exception) -> str:
    if isinstance(error, _DAMAGED):
        return "stop the broker and restore a backup (logbroker meta restore)"
    if isinstance(error, lmdb.ReadersFullError):
        return "too many programs read it; try again"
    number = _number_of(error)
    advice = advice_for(number)
    if advice and number not in (errno.EIO, errno.ENOENT):
        return advice
    return "check the disk, and restore a backup if the store is damaged (logbroker meta restore)"


def _number_of(error: Exception) -> int:
    """Return the number of a system error, or 0 for another error."""
    if isinstance(error, OSError):
        return error.errno or 0
    # LMDB keeps the text of a system error, but not its number.
    return next((each for each in errno.errorcode if str(error).endswith(os.strerror(each))), 0)


def _has_room_for(map_bytes: int) -> bool:
    """Return whether this process can map this many more bytes."""
    try:
        flags = mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0)
        mmap.mmap(-1, map_bytes, flags=flags, prot=mmap.PROT_READ).close()
    except (OSError, ValueError, OverflowError):
        return False
    return True


def is_missing(path: Path) -> bool:
    """Return whether there is no store in this directory yet: a broker would begin an empty one. Raises
    DataDirError."""
    _check_kind(path, stat.S_IFDIR, "directory", _RESTORE)
    size_bytes = _check_kind(path / DATA_NAME, stat.S_IFREG, "file", _RESTORE)
    _check_kind(path / _LOCK_NAME, stat.S_IFREG, "file", ": it is made anew")
    return not size_bytes


def _check_kind(path: Path, kind: int, name: str, advice: str) -> int:
    """Return the size of the file or directory at a path, or 0 if there is none. Raises DataDirError if it has another
    kind: LMDB would wait for a FIFO, or make a new store at the target of a dangling link."""
    try:
        is_link = stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return 0
    except OSError as error:
        raise _cannot_look_at(path, error) from None
    try:
        found = os.stat(path)
    except OSError as error:
        if not is_link or error.errno not in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            raise _cannot_look_at(path, error) from None
        what = "a symbolic link that leads nowhere"
    else:
        if stat.S_IFMT(found.st_mode) == kind:
            return found.st_size
        what = kind_name(found.st_mode)
    raise DataDirError(f"{path} is no {name}, but {what}; move it away{advice}")


def _cannot_look_at(path: Path, error: OSError) -> DataDirError:
    """Return the error for a path of which nobody can say whether anything is there. A sound store may be
    there, so the error does not advise to restore a backup."""
    advice = advice_for(error.errno or 0) or "check the disk"
    return DataDirError(f"cannot look for the metadata store at {path}: {reason_of(error)}; {advice}")


def copy_store(path: Path, target_fd: int) -> None:
    """Copy a snapshot of the store in a directory to an empty file, compacted; a broker may run meanwhile.

    Raises CorruptLogError if its pages are damaged, DataDirError, and OSError if the file cannot be written.
    """
    if is_missing(path):
        raise DataDirError(f"there is no metadata store in {path}; name the data directory of a broker")
    try:
        check_pages(path / DATA_NAME, TABLES, live=True)
        # This is a registered reader of LMDB: the broker does not reuse the pages of the snapshot meanwhile.
        _make_lock(path)
        environment = lmdb.open(
            os.fsencode(path), map_size=0, max_dbs=len(TABLES), readonly=True, create=False, mode=FILE_MODE
        )
    except (OSError, lmdb.Error) as error:
        raise _failed("copy", path, error) from None
    try:
        environment.copyfd(target_fd, compact=True)
    except (OSError, lmdb.Error) as error:
        if number := _number_of(error):  # The store is mapped, so only writes to the file can fail.
            raise OSError(number, os.strerror(number)) from None
        raise _failed("copy", path, error) from None
    finally:
        environment.close()


def _checked(path: Path, table: str, key: bytes, stored: bytes) -> bytes:
    value = stored[:-_CRC_BYTES]
    if len(stored) < _CRC_BYTES or _crc(key, value) != stored[-_CRC_BYTES:]:
        raise CorruptLogError(
            f"{path}: the row of key {key.hex()} in table {table} is damaged, in its key or in its value; restore a"
            " backup of the store (logbroker meta restore)"
        )
    return value


def _crc(key: bytes, value: bytes) -> bytes:
    crc: int = google_crc32c.value(key + value)
    return crc.to_bytes(_CRC_BYTES, "big")
