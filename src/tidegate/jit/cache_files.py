"""Files of compiled kernels: a folder for each user that can be written, and folders that came with the program.

A file is whole or absent, and a digest proves that it is what was written. A file that cannot be read counts as absent;
one that cannot be written is compiled again the next time.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import platformdirs

import tidegate

#: Names a folder of compiled kernels that is read first, and never written.
FOLDER_VARIABLE = "TIDEGATE_KERNELS"

_DIGEST_BYTES = 16

#: Prefix of unfinished files; such a file is a remainder after so many seconds.
_PART, _REMAINS_S = ".part-", 3600.0


class KernelStore:
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
        """Write under a name, atomically or not at all; return whether that worked."""
        folder = self.folders[-1]
        part = folder / f"{_PART}{secrets.token_hex(8)}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # With the permissions that the umask leaves, unlike `tempfile`: an image is made by one user and run by
            # another.
            with part.open("xb") as file:
                file.write(_digest(data) + data)
            part.replace(folder / name)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            return False
        return True

    def clear_remains(self) -> None:
        """Remove unfinished files of processes that ended an hour ago or longer."""
        with suppress(OSError):
            for path in self.folders[-1].glob(f"{_PART}*"):
                if time.time() - path.stat().st_mtime > _REMAINS_S:
                    path.unlink()

    def has(self, name: str) -> bool:
        """Whether there is something under a name that can be read."""
        return self.read(name) is not None


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def user_folder() -> Path:
    """Where kernels that are compiled here are kept."""
    return Path(platformdirs.user_cache_dir("tidegate")) / "kernels"


def bundled_folders() -> tuple[Path, ...]:
    """Folders that came with the program: the one that the environment names, and the one in the package."""
    named, inside = os.environ.get(FOLDER_VARIABLE), Path(tidegate.__path__[0]) / "compiled_kernels"
    return tuple(
        folder for folder in (Path(named) if named else None, inside) if folder is not None and _is_there(folder)
    )


def _is_there(folder: Path) -> bool:
    """Whether a folder can be found; one behind a folder that may not be entered cannot."""
    try:
        return folder.is_dir()
    except OSError:
        return False


def open_store() -> KernelStore:
    """The store of this process."""
    return KernelStore((*bundled_folders(), user_folder()))
