"""Run as a process: bring a database up to date."""

from __future__ import annotations

import asyncio
import sys

from classifier.audit.schema import upgrade

asyncio.run(upgrade(sys.argv[1]))
