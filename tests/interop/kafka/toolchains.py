"""Makes the programs that run Kafka clients of other languages, each once, in a cache outside the checkout.

The sources of a program decide the name of its folder in ~/.cache/logbroker-tests, which may be deleted at any time.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).resolve().parent
_TRIES: Final = 3
_MADE: Final = "made"
_CLASS_PATH: Final = "class-path"
_RESOLVE: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:build-classpath"
_JAVA: Final = ("java", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m", "-Dslf4j.internal.verbosity=ERROR")


class MissingToolError(Exception):
    """Says why a program cannot be run here."""


@dataclass(frozen=True)
class Toolchain:
    """Commands that make and run the program of a language."""

    folder: str
    """Where the sources lie, beside this file."""
    tools: Sequence[str]
    download: Callable[[Path], list[Sequence[str]]]
    """Returns the commands that ask a registry, given the folder where the program is made."""
    build: Callable[[Path], list[Sequence[str]]]
    command: Callable[[Path], list[str]]
    """Returns the command that runs the program."""


def _mvn(folder: Path) -> list[Sequence[str]]:
    command = ["mvn", "--quiet", "--batch-mode", "--strict-checksums"]
    return [[*command, _RESOLVE, f"-Dmdep.outputFile={folder / _CLASS_PATH}"]]


def _class_path(folder: Path) -> str:
    return (folder / _CLASS_PATH).read_text(encoding="utf-8").strip()


def _javac(folder: Path) -> list[Sequence[str]]:
    return [["javac", "-cp", _class_path(folder), "Program.java"]]


TOOLCHAINS: Final = {
    "java": Toolchain(
        "java", ("java", "javac", "mvn"), _mvn, _javac,
        lambda folder: [*_JAVA, "-cp", f"{folder}:{_class_path(folder)}", "Program"],
    ),
    "go": Toolchain(
        "go", ("go",),
        lambda _: [["go", "mod", "download"]],
        lambda _: [["go", "build", "-o", "program", "."]],
        lambda folder: [str(folder / "program")],
    ),
    "node": Toolchain(
        "node", ("node", "npm"),
        lambda _: [["npm", "ci", "--omit=optional", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]],
        lambda _: [],
        lambda folder: ["node", str(folder / "program.mjs")],
    ),
}  # fmt: skip


@functools.cache
def _made(language: str) -> tuple[list[str], str]:
    """The command that runs the program of a language, and what is missing for that."""
    toolchain = TOOLCHAINS[language]
    missing = [tool for tool in toolchain.tools if shutil.which(tool) is None]
    if missing:
        return [], f"not installed here: {', '.join(missing)}"
    sources = sorted(path for path in (_HERE / toolchain.folder).iterdir() if path.is_file())
    digest = hashlib.sha256()
    for path in sources:
        digest.update(f"{path.name}\n".encode() + path.read_bytes())
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "logbroker-tests")
    cache.mkdir(parents=True, exist_ok=True)
    folder = cache / f"kafka-{language}-{digest.hexdigest()[:16]}"
    with Path(f"{folder}.lock").open("w") as lock:  # Several processes share the work of a test run.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / _MADE).exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for path in sources:
                shutil.copy(path, folder)
            for command in toolchain.download(folder):
                if said := _failure(command, folder, _TRIES):
                    return (
                        [],
                        f"{command[0]} cannot get the packages of a Kafka client; is its registry in reach? {said}",
                    )
            for command in toolchain.build(folder):
                said = _failure(command, folder)
                assert not said, f"{' '.join(command)}\n{said}"
            (folder / _MADE).touch()
    return toolchain.command(folder), ""


def _failure(command: Sequence[str], folder: Path, tries: int = 1) -> str:
    """Run a command; returns what it said where it failed."""
    said = ""
    for _ in range(tries):
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            return ""
        said = f"{done.stdout}\n{done.stderr}".strip() or f"exit code {done.returncode}"
    return said


def program_command(language: str) -> list[str]:
    """Return the command that runs the program of a language. Raises MissingToolError where there can be none."""
    command, missing = _made(language)
    if missing:
        raise MissingToolError(missing)
    return command
