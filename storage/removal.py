"""Removes partitions in two steps: first they are set aside, which is quick, then deleted.

To set a directory aside is to rename it to a name that no topic can have, so its old name is free at once. After a
crash, directories that are set aside are removed at the next start.
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from logbroker.errors import CorruptLogError, TooManyOpenFilesError
from logbroker.storage.files import NOT_OURS, Files, read_file, reading, storage_failed
from logbroker.storage.handles import HandleCache
from logbroker.storage.partition_files import METADATA_NAME, decode_metadata
from logbroker.types import TopicId, topic_id_text

_log = logging.getLogger(__name__)

_SUFFIX: Final = "-delete"
_SET_ASIDE: Final = re.compile(rf"[A-Za-z0-9_-]{{22}}-\d+{_SUFFIX}")
"""The names of directories that were set aside: a topic id (see `topic_id_text`) and a partition number. Directories
with other names are not the broker's, even if they end in the same way."""


def is_set_aside(name: str) -> bool:
    """Return whether a directory of this name was set aside."""
    return _SET_ASIDE.fullmatch(name) is not None


def set_aside(directories: list[Path], topic_id: TopicId, files: Files, handles: HandleCache) -> list[str]:
    """Rename partition directories of a deleted topic, durably, and return their new paths, for `remove_set_aside`.

    Missing directories are skipped. Directories of another topic with the same name are skipped, too: a restored backup
    may record the deletion of an older topic. If a directory is a symbolic link, only the link is removed. Raises
    TooManyOpenFilesError (call it again: the new names are not durable yet) and StorageFailedError.
    """
    renamed = []
    for directory in directories:
        if _is_of_another_topic(directory, topic_id, files, handles):
            continue
        if files.is_link(str(directory)):
            _remove_link(directory, files)
            continue
        # Without the topic's name, which may already have the maximum length of a file name.
        number = directory.name.rpartition("-")[2]
        path = f"{directory.parent}/{topic_id_text(topic_id)}-{number}{_SUFFIX}"
        renamed.append(path)  # Also if an earlier attempt has renamed it.
        try:
            files.rename(str(directory), path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_failed("rename", str(directory), error) from error
    for parent in {str(directory.parent) for directory in directories}:
        try:
            handles.with_room(partial(files.sync_directory, parent))
        except OSError as error:
            raise storage_failed("sync", parent, error) from error
    return renamed


def _remove_link(directory: Path, files: Files) -> None:
    """Remove a symbolic link. The broker does not delete its target, which is in another place."""
    target = os.path.realpath(directory)
    try:
        files.unlink(str(directory))
    except OSError as error:
        if error.errno not in (*NOT_OURS, errno.ENOENT):
            raise storage_failed("delete", str(directory), error) from error
    _log.warning(
        "%s, of a deleted topic, was a symbolic link: it is removed, but the files in %s stay; remove them yourself",
        directory,
        target,
    )


def _is_of_another_topic(directory: Path, topic_id: TopicId, files: Files, handles: HandleCache) -> bool:
    path = f"{directory}/{METADATA_NAME}"
    try:
        return decode_metadata(path, handles.with_room(partial(read_file, files, path))).topic_id != topic_id
    except (FileNotFoundError, CorruptLogError):
        return False  # a power cut took the file, before the first append
    except OSError:
        return True  # not known


def remove_set_aside(data_dir: Path, files: Files, handles: HandleCache, paths: Iterable[str] | None = None) -> bool:
    """Remove directories that were set aside, with their files: the directories in `paths`, or all that a search of the
    data directory finds. The search takes longer the more partitions there are.

    Return False if no descriptor is left and some directories stay for the next search. A directory stays, and is
    logged, if it has something in it that the broker did not make or may not remove. Raises StorageFailedError.
    """
    path = str(data_dir)
    try:
        if paths is None:
            names = handles.with_room(partial(files.list_directories, path))
            paths = [f"{data_dir}/{name}" for name in names if is_set_aside(name)]
        for path in paths:
            _remove(path, files, handles)
    except TooManyOpenFilesError:
        return False
    except OSError as error:
        raise storage_failed("remove", path, error) from error
    return True


def _remove(path: str, files: Files, handles: HandleCache) -> None:
    try:
        with suppress(FileNotFoundError):  # Another deletion was faster.
            with reading(path):
                names = handles.with_room(partial(files.list_directory, path))
            for file_name in names:
                files.unlink(f"{path}/{file_name}")
            files.remove_directory(path)
    except CorruptLogError as error:
        _log.warning("cannot remove %s, of a deleted topic: %s", path, error)
    except OSError as error:
        if error.errno not in NOT_OURS:
            raise
        reason = error.strerror or error
        _log.warning("cannot remove %s, of a deleted topic: %s; remove what is in it yourself", path, reason)
