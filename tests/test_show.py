"""What people read on a terminal: tables that hold together on a narrow one."""

from __future__ import annotations

import io
import uuid

from rich.console import Console

from commands.show import table


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
