"""Runs benchmarks by name, or all of them.

python -m tests.bench [NAME …] [--out FOLDER]
"""

from __future__ import annotations

import argparse
import platform
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
PARTS = sorted(path.stem for path in HERE.glob("*.py") if not path.stem.startswith("_"))


def main() -> None:
    """Each part in a process of its own, one after another."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("names", nargs="*", default=PARTS, help=", ".join(PARTS))
    arguments.add_argument("--out", type=Path, help="where each part writes its JSON")
    given = arguments.parse_args()
    unknown = sorted(set(given.names) - set(PARTS))
    if unknown:
        arguments.error(f"there is no benchmark {', '.join(unknown)}; there is {', '.join(PARTS)}")
    print(f"{platform.platform()}, Python {platform.python_version()}\n", flush=True)
    failed = [part for part in given.names if not _run(part, given.out)]
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


def _run(part: str, out: Path | None) -> bool:
    print(f"── {part}", flush=True)
    command = [sys.executable, "-m", f"tests.bench.{part}", *([] if out is None else ["--out", str(out)])]
    return subprocess.run(command, check=False).returncode == 0


if __name__ == "__main__":
    main()
