"""Makes `tickets.jsonl`: a thousand real customer messages as CloudEvents, from the BANKING77 sample.

python examples/make_tickets.py tests/data/banking77/data.jsonl > examples/tickets.jsonl
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path

COUNT = 1_000
FIRST = datetime(2026, 11, 2, 8, 0, tzinfo=UTC)


def tickets(rows: Path) -> Iterator[str]:
    """The first thousand messages, test rows first, one every seven seconds."""
    messages = [json.loads(line) for line in rows.read_text(encoding="utf-8").splitlines()]
    messages.sort(key=lambda message: message["split"])
    for number, message in enumerate(islice(messages, COUNT)):
        event = {
            "specversion": "1.0",
            "id": message["id"],
            "source": "https://example.com/helpdesk",
            "type": "com.example.ticket.opened",
            "time": (FIRST + timedelta(seconds=7 * number)).isoformat(),
            "data": {"text": message["text"]},
        }
        yield json.dumps(event, ensure_ascii=False)


if __name__ == "__main__":
    sys.stdout.reconfigure(encoding="utf-8")  # type: ignore[union-attr]  # a text stream when run as a script
    sys.stdout.writelines(f"{line}\n" for line in tickets(Path(sys.argv[1])))
