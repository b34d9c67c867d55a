"""The command where the extra `parquet` is not installed."""

from __future__ import annotations

import sys

from cli import main

if __name__ == "__main__":
    sys.modules["pyarrow"] = None  # type: ignore[assignment]
    main()
