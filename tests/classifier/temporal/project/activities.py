"""What the project does besides asking."""

from __future__ import annotations

from temporalio import activity


@activity.defn
async def file_away(folder: str) -> str:
    """Puts something into a folder."""
    return f"filed in {folder}"
