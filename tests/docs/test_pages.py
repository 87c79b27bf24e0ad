"""Every code block of README.md, docs/ and examples/README.md runs as it stands, in the order of its page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import Page, pages
from tests.docs.runner import run

TIMEOUT_SECONDS = 240
"""For one page, on a machine that is busy with other tests."""


@pytest.mark.prove(keep=1)  # README comes first.
@pytest.mark.parametrize(
    "page", [page for page in pages() if any(block.is_run for block in page.blocks)], ids=lambda page: page.name
)
def test_a_page_works_as_it_stands(page: Page, tmp_path: Path) -> None:
    if lacking := run(page, tmp_path, timeout_seconds=TIMEOUT_SECONDS):
        needed = sorted({tool for block in lacking for tool in block.needs})
        pytest.skip(f"all ran but {len(lacking)} blocks, which need {', '.join(needed)}")
