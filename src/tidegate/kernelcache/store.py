"""Files of compiled kernels: one that can be written to for each user, and folders that came with the program.

A file is there whole or not at all, and says by a digest that it is what was written. What cannot be read is as if it
were not there; what cannot be written is compiled again the next time.
Must not know: what is in the files.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

import tidegate

#: Names a folder of compiled kernels that is looked into first, and never written to.
FOLDER_VARIABLE = "TIDEGATE_KERNELS"

_DIGEST_BYTES = 16

#: What is not written yet has a name that begins so; it is a remainder after so many seconds.
_PART, _REMAINS_S = ".part-", 3600.0


class Store:
    """Files in folders: all are read from, in order, and the last is written to."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self.folders = tuple(folders)

    def read(self, name: str) -> bytes | None:
        """What was written under a name; None: nothing that can be used."""
        for folder in self.folders:
            with suppress(OSError):
                found = (folder / name).read_bytes()
                digest, data = found[:_DIGEST_BYTES], found[_DIGEST_BYTES:]
                if _digest(data) == digest:
                    return data
        return None

    def write(self, name: str, data: bytes) -> bool:
        """Write under a name, at once or not at all; says whether that worked."""
        folder = self.folders[-1]
        try:
            folder.mkdir(parents=True, exist_ok=True)
            handle, path = tempfile.mkstemp(dir=folder, prefix=_PART)
        except OSError:
            return False
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(_digest(data) + data)
            Path(path).replace(folder / name)
        except OSError:
            Path(path).unlink(missing_ok=True)
            return False
        return True

    def clear_remains(self) -> None:
        """Remove what was being written when its process ended, an hour ago or longer."""
        with suppress(OSError):
            for path in self.folders[-1].glob(f"{_PART}*"):
                if time.time() - path.stat().st_mtime > _REMAINS_S:
                    path.unlink()

    def has(self, name: str) -> bool:
        """Say whether there is something under a name."""
        return any((folder / name).is_file() for folder in self.folders)


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def user_folder() -> Path:
    """Where kernels that are compiled here are kept."""
    return Path(platformdirs.user_cache_dir("tidegate")) / "kernels"


def bundled_folders() -> tuple[Path, ...]:
    """Folders that came with the program: the one that the environment names, and the one in the package."""
    named, inside = os.environ.get(FOLDER_VARIABLE), Path(tidegate.__path__[0]) / "compiled_kernels"
    return tuple(
        folder for folder in (Path(named) if named else None, inside) if folder is not None and folder.is_dir()
    )


def open_store() -> Store:
    """The store of this process."""
    return Store((*bundled_folders(), user_folder()))
