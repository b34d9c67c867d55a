"""What people read on a terminal: tables that hold together on a narrow one."""

from __future__ import annotations

import io
import uuid

from rich.console import Console

from commands.look import beginning
from commands.show import entry, table


def test_an_id_stays_on_one_line_of_a_narrow_terminal_so_that_it_can_be_copied() -> None:
    written = io.StringIO()
    decision = str(uuid.uuid4())
    cells = [decision, "1234", "a text that is long enough for several lines " * 3, "why"]
    Console(file=written, width=80).print(table("Title", ["=decision", "#waits", "text", "why"], [cells]))
    lines = written.getvalue().splitlines()
    assert sum(decision in line for line in lines) == 1
    assert max(map(len, lines)) <= 80
    assert sum("several" in line for line in lines) > 1
    assert "=decision" not in written.getvalue()


def test_a_head_is_one_line_to_be_found_and_what_is_below_it_is_wrapped_and_indented() -> None:
    written = io.StringIO()
    head = f"{uuid.uuid4()}  2026-11-30 11:33:27Z  a playbook with a name that is rather long for a terminal"
    entry(Console(file=written, width=60), head, ["route billing", "", "department: billing 0.98, " * 5])
    first, *below = written.getvalue().splitlines()
    assert first == head
    assert all(line.startswith("    ") and len(line) <= 60 for line in below)
    assert below[0].strip() == "route billing"


def test_of_a_long_text_the_beginning_is_shown_and_how_much_more_there_is() -> None:
    assert beginning("short", 5) == "short"
    assert beginning("x" * 1_005, 5) == "xxxxx… (1,000 more characters; --json has them)"
