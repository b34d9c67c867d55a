"""What counts as an address on the web. Pure."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit


def web_address(text: str) -> SplitResult | None:
    """The parts of an http or https URL with a host; None for anything else."""
    try:
        parts = urlsplit(text)
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return None
    return parts if usable else None
