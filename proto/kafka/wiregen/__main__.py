"""Writes the modules, or with --check compares them with those that are there."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from wiregen.modules import generated

ROOT = Path(__file__).resolve().parents[3]
DEFINITIONS = Path(__file__).resolve().parents[1] / "definitions"
OUTPUT = ROOT / "logbroker" / "kafka_wire"
HAND_WRITTEN = {"__init__.py", "codec.py", "primitives.py", "messages/__init__.py"}


def made() -> dict[str, str]:
    """Return the formatted texts of all modules, by their paths below the output."""
    texts = generated(DEFINITIONS)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in texts.items():
            path = Path(folder, name)
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "ruff", "format", "--quiet", "--isolated", "--line-length=120", folder]
        subprocess.run(command, check=True)
        return {name: Path(folder, name).read_text(encoding="utf-8") for name in texts}


def main(arguments: list[str]) -> int:
    texts = made()
    present = {path.relative_to(OUTPUT).as_posix(): path for path in OUTPUT.rglob("*.py")}
    surplus = present.keys() - texts.keys() - HAND_WRITTEN
    if arguments == ["--check"]:
        stale = surplus | {
            name
            for name, text in texts.items()
            if name not in present or present[name].read_text(encoding="utf-8") != text
        }
        for name in sorted(stale):
            sys.stderr.write(f"logbroker/kafka_wire/{name} is out of date: run make kafka-wire and commit it\n")
        return bool(stale)
    for name in surplus:
        present[name].unlink()
    for name, text in texts.items():
        (OUTPUT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
