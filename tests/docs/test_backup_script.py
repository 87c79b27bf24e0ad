"""The backup script of the page for operators removes old backups, and nothing else."""

from __future__ import annotations

import subprocess
from pathlib import Path

_PAGE = Path(__file__).parents[2] / "docs" / "PRODUCTION.md"


def test_only_old_backups_are_removed_whatever_the_target_is_called(tmp_path: Path) -> None:
    [line] = [line for line in _PAGE.read_text().splitlines() if line.startswith('ls -d "$target"')]
    target, other = tmp_path / "My Backups", tmp_path / "My"
    other.mkdir()
    for day in range(1, 5):
        (target / f"2026-01-0{day}T000000").mkdir(parents=True)
    subprocess.run(["sh", "-e", "-c", f"target=$1 KEEP=2\n{line}", "sh", target], check=True, timeout=20)
    assert sorted(path.name for path in target.iterdir()) == ["2026-01-03T000000", "2026-01-04T000000"]
    assert other.exists()
