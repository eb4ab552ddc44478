"""Hooks of the documentation site: the decision records in the navigation, and Mermaid served by the site itself.

The theme loads Mermaid from a CDN unless a page brings it. So the build fetches one pinned release with `npm pack`,
checks its digest, keeps it in `build/`, and adds it to the site: readers load nothing from other hosts.
"""

from __future__ import annotations

import base64
import hashlib
import io
import subprocess
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
VERSION = "11.17.2"
PACKAGE = f"mermaid@{VERSION}"
SHA512 = "V6K3C8EBdEsPFZXSKMJe6ppQOENxuHARr9GvHX4hh47lAbhMRD9qf4oEK7LoaRQxULMa80/qt5gHO73aCleBBg=="
SCRIPT = "assets/mermaid.min.js"

#: The entry of mkdocs.yml that the list of records replaces.
_RECORDS = "adr"


def on_config(config: Any) -> Any:
    """Add the script to every page, and list the decision records."""
    config.extra_javascript.append(SCRIPT)
    config.nav = [_listed(entry, Path(config.docs_dir)) for entry in config.nav]
    return config


def _listed(entry: dict[str, Any], docs: Path) -> dict[str, Any]:
    return {
        title: [{_title(path): f"{where}/{path.name}"} for path in sorted((docs / where).glob("*.md"))]
        if where == _RECORDS
        else where
        for title, where in entry.items()
    }


def _title(path: Path) -> str:
    return path.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")


def on_files(files: Files, config: Any) -> Files:
    """Add the script to the site."""
    files.append(File.generated(config, SCRIPT, content=_mermaid()))
    return files


def _mermaid() -> bytes:
    kept = ROOT / "build" / f"mermaid-{VERSION}.min.js"
    if not kept.exists():
        with tempfile.TemporaryDirectory() as folder:
            pack = ["npm", "pack", "--silent", PACKAGE]
            subprocess.run(pack, cwd=folder, check=True, timeout=120)  # noqa: S603 - a constant
            packed = (Path(folder) / f"mermaid-{VERSION}.tgz").read_bytes()
        if base64.b64encode(hashlib.sha512(packed).digest()).decode() != SHA512:
            raise SystemExit(f"{PACKAGE}: has another digest than tools/docs_hooks.py expects")
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            script = archive.extractfile("package/dist/mermaid.min.js")
            assert script is not None
            kept.parent.mkdir(exist_ok=True)
            kept.write_bytes(script.read())
    return kept.read_bytes()
