"""The error of an installation that lacks a package.

Import this module first. It imports nothing, so it can report any missing package.
"""

from __future__ import annotations


def missing_module_text(error: ImportError) -> str | None:
    """Return what to do about a package that is missing or broken, or None if the import of a module of this project
    failed, which is a bug."""
    if error.name is None or error.name.partition(".")[0] == "logbroker":
        return None
    return f"{error}: a package that logbroker needs is missing or broken: pip install --force-reinstall logbroker"
