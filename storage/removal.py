"""Removing partitions: first out of the way, which is quick, then for good.

A directory that is set aside bears a name that no topic can have, so its old name is free at once; whatever a crash
leaves set aside is removed at the next start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from logbroker.storage.files import Files, storage_failed
from logbroker.types import TopicId, topic_id_text

SUFFIX: Final = "-delete"


def set_aside(directories: list[Path], topic_id: TopicId, files: Files) -> None:
    """Rename partition directories of a deleted topic, durably; those that are gone are passed over.

    Raises StorageFailedError.
    """
    for directory in directories:
        try:
            # The topic's own name may be as long as a file's name can be, so it is left out.
            number = directory.name.rpartition("-")[2]
            files.rename(str(directory), f"{directory.parent}/{topic_id_text(topic_id)}-{number}{SUFFIX}")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise storage_failed("rename", str(directory), error) from error
    for parent in {str(directory.parent) for directory in directories}:
        try:
            files.sync_directory(parent)
        except OSError as error:
            raise storage_failed("sync", parent, error) from error


def remove_set_aside(data_dir: Path, files: Files) -> None:
    """Remove every directory that was set aside, with its files. Raises StorageFailedError."""
    for name in files.list_directories(str(data_dir)):
        if not name.endswith(SUFFIX):
            continue
        path = f"{data_dir}/{name}"
        try:
            for file_name in files.list_directory(path):
                files.unlink(f"{path}/{file_name}")
            files.remove_directory(path)
        except FileNotFoundError:
            continue  # Another deletion was faster.
        except OSError as error:
            raise storage_failed("remove", path, error) from error
