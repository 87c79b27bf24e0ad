"""The runner of pages runs blocks as a reader would, and reports what fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.markdown import ROOT, Page, read
from tests.docs.runner import PageError, run
from tests.waiting import until


def page(folder: Path, text: str) -> Page:
    path = folder / "page.md"
    path.write_text(text, encoding="utf-8")
    return read(path)._replace(path=ROOT / "page.md")


@pytest.mark.prove
def test_blocks_share_a_shell_and_a_folder_and_leave_nothing_running(tmp_path: Path) -> None:
    told = page(
        tmp_path,
        "```sh\nsleep 300 &\necho $! > pid\nword=carried\nmkdir place\n```\n"
        "```python\nfrom pathlib import Path\n\nPath('place/port').write_text('9192')\n```\n"
        "<!-- stopped after 1 s -->\n```sh\nsleep 300\n```\n"
        "```python\ndef test_one():\n    open('tested', 'w').close()\n```\n"
        "<!-- not run: it fails -->\n```sh\nexit 1\n```\n"
        "<!-- needs: no-such-program -->\n```sh\nno-such-program\n```\n"
        "```sh\ncd place\n```\n"
        "```sh\necho $word at $(cat port), took 3.5 s\nls ../tested\n```\n"
        "<!-- output -->\n```text\n$ echo\n...\ncarried at 1, took  1.25 s\n```\n"
        "```sh\nprintf 'key\\n  a\\n  b\\n'\n```\n"
        "<!-- output -->\n```text\nkey\n  a\n...\n```\n"
        "<!-- output -->\n```text\nkey\n  a\n  b\n```\n",
    )
    lacking = run(told, tmp_path, timeout_seconds=60)
    assert [block.needs for block in lacking] == [["no-such-program"]]
    assert (tmp_path / "work" / "place" / "port").read_text() != "9192"
    sleeper = Path("/proc", (tmp_path / "work" / "pid").read_text().strip())
    until(lambda: is_gone(sleeper))


def is_gone(process: Path) -> bool:
    """Whether a process has ended, reaped or not."""
    try:
        return ") Z " in (process / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.prove(keep=1)
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("Text.\n\n```sh\necho said; false\n```\n", r"page.md:4: this block ended with exit code 1(?s:.*)\nsaid"),
        ("```sh\ntrue\n```\n```python\nraise SystemExit(3)\n```\n", "page.md:5: this block ended with exit code 3"),
        ("```python\ndef test_one():\n    assert 1 == 2\n```\n", "page.md:2(?s:.*)assert 1 == 2"),
        ("```sh\nsleep 60\n```\n", "page.md:2: this block did not end in time"),
        ("```sh\necho one\n```\n<!-- output -->\n```text\ntwo\n```\n", "page.md:6: no block of the page writes\ntwo"),
        (
            "```sh\nprintf 'key\\n  a\\n  b\\n'\n```\n<!-- output -->\n```text\nkey\n  a\n```\n",
            "page.md:6: the output ends in the midst of a screen, before\n  b",
        ),
    ],
)
def test_a_fault_is_reported_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PageError, match=told):
        run(page(tmp_path, text), tmp_path, timeout_seconds=2 if "sleep" in text else 60)
