"""Commands, options, files and links that pages name exist, and each code block names its language."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.docs.command_lines import fault_of_call, fault_of_mention, in_script
from tests.docs.markdown import ROOT, RUN, SHOWN, Page, pages, read

PAGES = pages()
of_each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
FILES = [
    str(path.relative_to(ROOT))
    for folder in (
        "",
        "docs",
        "examples",
        "logbroker",
        "storage",
        "consumer_groups",
        "tools",
        "tests",
        "proto",
        "compare",
    )
    for path in ((ROOT / folder).rglob("*") if folder else ROOT.glob("*"))
]
NAMED_FILE = re.compile(r"(?:\w[\w.-]*/)*[^\W_][\w.-]*\.(?:py|md|proto|toml|lock|svg|go|js)")
NAMED_FOLDER = re.compile(r"(?:docs|examples|logbroker|storage|consumer_groups|tools|tests|proto|compare)/[\w/.-]*")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
MADE_BY_READERS = {"FILE.toml", "examples/go/logbroker"}
"""Files that pages mention and readers make."""


@of_each_page
def test_each_block_says_its_language(page: Page) -> None:
    assert [(block.line, block.language) for block in page.blocks if block.language not in (*RUN, *SHOWN)] == []
    assert page.indented_blocks() == []
    assert [block.line for block in page.blocks if block.marks.get("not run") == ""] == [], "say why it is not run"


@of_each_page
def test_each_command_line_parses(page: Page) -> None:
    faults = [
        (page.name, block.line, " ".join(call), fault)
        for block in page.blocks
        if block.language == "sh"
        for call in in_script(block.text)
        if (fault := fault_of_call(call))
    ]
    faults += [
        (page.name, line, code, fault)
        for line, code in page.codes()
        if code.startswith("logbroker ") and (fault := fault_of_mention(code))
    ]
    assert faults == []


@of_each_page
def test_each_file_that_is_named_exists(page: Page) -> None:
    made = {match for block in page.blocks for match in NAMED_FILE.findall(block.text)} | MADE_BY_READERS
    named = {
        (line, name)
        for line, code in page.codes()
        for name in code.split()
        if NAMED_FILE.fullmatch(name) or NAMED_FOLDER.fullmatch(name)
    }
    endings = {path[start:] for path in FILES for start in _starts(path)}
    assert sorted((line, name) for line, name in named if name.rstrip("/") not in endings | made) == []


def _starts(path: str) -> list[int]:
    return [0, *(match.end() for match in re.finditer("/", path))]


@of_each_page
def test_each_link_leads_somewhere(page: Page) -> None:
    lost = []
    for line, target in page.links():
        path, _, place = target.partition("#")
        if re.match(r"[a-z]+:", path):
            continue
        file = page.path if not path else (page.path.parent / path).resolve()
        if not file.exists() or (place and place not in read(file).anchors()):
            lost.append((line, target))
    assert lost == []


def test_links_of_the_readme_work_on_a_package_index_once_there_is_a_repository() -> None:
    """An index shows the README alone, so its links need the repository once pyproject.toml names one."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    local = [target for _, target in PAGES[0].links() if not re.match(r"https:|#", target)]
    assert local == [] or "urls" not in project


def test_figures_of_the_readme_are_those_that_were_measured() -> None:
    pages = {page.path.stem: " ".join(page.path.read_text(encoding="utf-8").split()) for page in PAGES}
    section = PAGES[0].path.read_text(encoding="utf-8").split("\n## Measured\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in section.splitlines() if re.match(r"\| [A-Z]", line)]
    alone, beside = [row for row in rows if len(row) == 3], [row for row in rows if len(row) == 6]
    assert (len(alone), len(beside)) == (6, 7)
    for page, figures in (
        ("BENCHMARKS", [(number, row[0]) for row in alone for number in NUMBER.findall(row[1])]),
        ("COMPARISON", [(number, row[0]) for row in beside for cell in row[1:] for number in NUMBER.findall(cell)]),
        ("BENCHMARKS", [(row[2].strip(" `"), row[0]) for row in alone]),
    ):
        assert [
            told for told in figures if not re.search(rf"(?<![\w.,]){re.escape(told[0])}(?![\w])", pages[page])
        ] == []


@pytest.mark.parametrize("picture", sorted((ROOT / "docs").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_is_well_formed_loads_nothing_and_says_what_it_shows(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    root = ElementTree.fromstring(text)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert re.findall(r"(?:href|src)=|url\(\s*[\"']?http|@import", text) == []


def test_the_reader_finds_what_would_be_wrong(tmp_path: Path) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        "# A\n\n`logbroker topic crate`, `logbroker topic create --partitons 3`, `logbroker queue create ...`\n\n"
        "    logbroker serve\n\n"
        "```sh\nlogbroker topic create a --partitions 3 > x 2>&1 && logbroker consume a \\\n  --nothing | head -1\n"
        "cat <<'END'\nlogbroker nonsense\nEND\nlogbroker produce a --format cvs < x\n```\n"
        "<!-- not run: it would take a day -->\n```sh\nlogbroker queue explain a\n```\n",
        encoding="utf-8",
    )
    page = read(path)
    assert page.indented_blocks() == [5]
    assert [fault_of_mention(code) for _, code in page.codes()] == [
        "logbroker topic has no command 'crate'",
        "no option --partitons",
        None,
    ]
    run, shown = page.blocks
    assert (run.line, run.is_run, shown.is_run) == (8, True, False)
    faults = [fault_of_call(call) for call in in_script(run.text)]
    assert faults[0] is None
    assert [
        fault is not None and word in fault for fault, word in zip(faults[1:], ("--nothing", "cvs"), strict=True)
    ] == [
        True,
        True,
    ]
    [call] = in_script(shown.text)
    assert "KEY" in str(fault_of_call(call))


def test_no_page_has_many_blocks_that_are_not_run() -> None:
    """A block that is never run may be wrong for years; long benchmarks are the exception."""
    left = {page.name: sum("not run" in block.marks for block in page.blocks) for page in PAGES}
    assert sum(left.values()) < 25, left
