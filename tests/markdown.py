"""The project's documents as tests read them: code blocks, code spans, tables, headings, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tests.tree import ROOT

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>\w*)[^\n]*\n(?P<code>.*?)^ *```\s*$", re.MULTILINE | re.DOTALL
)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
_HEADING = re.compile(r"^#{1,6} +(.*?)\s*$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block of code."""

    document: Document
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.document}:{self.line}"


@dataclass(frozen=True)
class Document:
    """One Markdown file."""

    path: Path

    def __str__(self) -> str:
        return self.path.relative_to(ROOT).as_posix()

    @cached_property
    def text(self) -> str:
        """All of it."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """It without its code blocks."""
        return _FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> Iterator[Block]:
        """Its code blocks in these languages."""
        for found in _FENCE.finditer(self.text):
            if found["language"] in languages:
                line = self.text.count("\n", 0, found.start()) + 1
                code = re.sub(rf"^{found['indent']}", "", found["code"], flags=re.MULTILINE)
                yield Block(self, line, found["language"], code)

    def spans(self) -> list[str]:
        """Its code within lines."""
        return _SPAN.findall(self.prose)

    def links(self) -> list[str]:
        """Where it points to."""
        return _LINK.findall(_SPAN.sub("", self.prose))

    def anchors(self) -> set[str]:
        """What can be pointed to in it, as GitHub names it."""
        headings = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in _HEADING.findall(self.prose))
        return {heading.replace(" ", "-") for heading in headings}

    def first_column(self, header: str) -> Iterator[str]:
        """The code spans in the first column of the tables whose first header is this."""
        inside = False
        for line in self.prose.splitlines():
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            if not line.lstrip().startswith("|"):
                inside = False
            elif not inside:
                inside = cells[0].lower() == header
            else:
                yield from _SPAN.findall(cells[0])


def documents() -> list[Document]:
    """Every document that people read."""
    paths = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [Document(path) for path in sorted(paths)]
