"""Reads pages of documentation: code blocks, code spans, links and headings.

Each fenced block names its language. The tests run `sh` and `python` blocks as they stand; other blocks are only shown.
A comment on the line before a block changes that:

    <!-- not run: REASON -->      The block is not run. Its command lines must still parse.
    <!-- needs: TOOL, TOOL -->    The block runs only where these programs are installed.
    <!-- stopped after N s -->    The block runs until it is stopped; it gets Ctrl-C after N seconds.
    <!-- output -->               Blocks of the page write each line of this `text` block, apart from
                                  numbers and spaces. `...` stands for lines left out, `$ ` begins a command.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parents[2]
RUN: Final = ("python", "sh")
SHOWN: Final = ("go", "ini", "java", "javascript", "json", "text", "toml", "xml", "yaml")

_FENCE: Final = re.compile(r"( *)(`{3,}|~{3,})(.*)")
_COMMENT: Final = re.compile(r"<!-- *(not run|needs|stopped after|output)(?::? +(.*?))? *-->")
_CODE: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_LINK: Final = re.compile(r"\]\(([^()\s]+)\)")
_REFERENCE: Final = re.compile(r"(?m)^\[([^\]]+)\]: +(\S+)$")
_TAG_LINK: Final = re.compile(r"(?:src|srcset|href)=\"([^\"]+)\"")


class Block(NamedTuple):
    """A fenced block of code."""

    line: int
    """The number of its first line, from 1."""
    language: str
    text: str
    marks: dict[str, str]
    """The comments before it, by their first word."""

    @property
    def is_run(self) -> bool:
        return self.language in RUN and "not run" not in self.marks

    @property
    def needs(self) -> list[str]:
        return [tool.strip() for tool in self.marks.get("needs", "").split(",") if tool.strip()]

    @property
    def stopped_after(self) -> float | None:
        """Seconds after which the block is stopped; None: it ends by itself."""
        told = self.marks.get("stopped after")
        return None if told is None else float(told.removesuffix("s"))


class Page(NamedTuple):
    """A page of documentation."""

    path: Path
    blocks: list[Block]
    prose: str
    """The page with empty lines in place of its blocks."""

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))

    def codes(self) -> list[tuple[int, str]]:
        """Return the code spans within the prose, each with its line number."""
        return [(self._line(match), " ".join(match[2].split())) for match in _CODE.finditer(self.prose)]

    def links(self) -> list[tuple[int, str]]:
        """Return the targets of links and pictures, each with its line number."""
        text = _CODE.sub(lambda match: "`" * len(match[0]), self.prose)
        return [
            (text.count("\n", 0, match.start()) + 1, match[match.lastindex or 0])
            for pattern in (_LINK, _REFERENCE, _TAG_LINK)
            for match in pattern.finditer(text)
        ]

    def anchors(self) -> set[str]:
        """Return the names that a link can give after `#`: headings as GitHub writes them, and HTML anchors."""
        found: set[str] = set(re.findall(r"<a (?:id|name)=\"([^\"]+)\"", self.prose))
        for heading in re.findall(r"(?m)^#+ +(.*?) *$", self.prose):
            text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
            slug = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
            number = sum(1 for other in found if re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other))
            found.add(f"{slug}-{number}" if number else slug)
        return found

    def indented_blocks(self) -> list[int]:
        """Return the line numbers of code blocks that are only indented, and so name no language."""
        lines = self.prose.split("\n")
        return [
            number
            for number, line in enumerate(lines, 1)
            if line.startswith("    ")
            and line.strip()
            and (number < 2 or not lines[number - 2].strip())
            and not _is_in_list(lines[: number - 1])
        ]

    def _line(self, match: re.Match[str]) -> int:
        return self.prose.count("\n", 0, match.start()) + 1


def pages() -> list[Page]:
    """Return all pages of documentation, README first."""
    others = (*sorted((ROOT / "docs").glob("*.md")), ROOT / "examples" / "README.md")
    return [read(path) for path in (ROOT / "README.md", *others)]


def read(path: Path) -> Page:
    """Read a page. Raises ValueError for a block that does not end."""
    blocks: list[Block] = []
    prose: list[str] = []
    marks: dict[str, str] = {}
    lines = iter(enumerate(path.read_text(encoding="utf-8").split("\n"), 1))
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if fence is None:
            prose.append(line)
            if comment := _COMMENT.fullmatch(line.strip()):
                marks[comment[1]] = comment[2] or ""
            elif line.strip():
                marks = {}
            continue
        indent, mark, language = len(fence[1]), fence[2], fence[3].strip()
        body: list[str] = []
        prose.append("")
        for _, inner in lines:
            prose.append("")
            if inner.strip().startswith(mark) and not inner.strip().strip(mark[0]):
                break
            body.append(inner[indent:] if not inner[:indent].strip() else inner)
        else:
            raise ValueError(f"{path.name}:{number}: this block does not end")
        blocks.append(Block(number + 1, language, "\n".join(body) + "\n", marks))
        marks = {}
    return Page(path, blocks, "\n".join(prose))


def _is_in_list(before: list[str]) -> bool:
    """Return whether an indented line after these lines belongs to a list item."""
    for line in reversed(before):
        if line.strip() and not line.startswith("  "):
            return re.match(r"([-*+]|\d+[.)]) ", line) is not None
    return False
