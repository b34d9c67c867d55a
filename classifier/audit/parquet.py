"""An export as a Parquet file, a row group per page. Needs the extra `parquet`."""

from __future__ import annotations

from importlib import import_module
from types import TracebackType
from typing import Any, BinaryIO, Self

import sqlalchemy as sa

from classifier.audit.export import FLAT, ExportPage
from classifier.errors import ConfigurationError


class ParquetFile:
    """Takes pages of the form "flat". A context manager.

    Args:
        file: Where to write; stays open.

    Raises:
        ConfigurationError: pyarrow is not installed.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._arrow: Any = import_module("pyarrow")
            self._json: Any = import_module("pyarrow.json")
            parquet: Any = import_module("pyarrow.parquet")
        except ImportError as error:
            raise ConfigurationError(
                "Parquet needs pyarrow; install temporal-classifier[parquet], or take --format jsonl"
            ) from error
        types = {name: _type(self._arrow, column.type) for name, column in FLAT.items()}
        self._schema = self._arrow.schema(types.items())
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.close()

    def write(self, page: ExportPage) -> None:
        """Adds the rows of a page."""
        lines = page.text.encode()
        self._writer.write_table(
            self._json.read_json(
                self._arrow.BufferReader(lines),
                read_options=self._json.ReadOptions(block_size=len(lines) + 1),
                parse_options=self._json.ParseOptions(
                    explicit_schema=self._schema, unexpected_field_behavior="error"
                ),
            )
        )


def _type(pa: Any, column: sa.types.TypeEngine[Any]) -> Any:
    match column:
        case sa.DateTime():
            return pa.timestamp("us", tz="UTC")
        case sa.BigInteger():
            return pa.int64()
        case sa.Double():
            return pa.float64()
        case sa.Boolean():
            return pa.bool_()
        case _:
            return pa.string()
