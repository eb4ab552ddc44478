"""The documentation site: every page is in it, its links lead somewhere, and it loads nothing from other hosts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
CONFIG = (ROOT / "mkdocs.yml").read_text()

PAGES = [ROOT / "README.md", *ROOT.glob("[A-Z]*.md"), *DOCS.rglob("*.md")]


def test_every_page_is_in_the_navigation():
    named = set(re.findall(r"^ +- .*: ([\w.-]+\.md)$", CONFIG, re.MULTILINE))
    assert named == {path.name for path in DOCS.glob("*.md")}


@pytest.mark.parametrize("page", sorted(set(PAGES)), ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(page):
    links = re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8"))
    targets = [link.partition("#")[0] for link in links if not re.match(r"\w+:", link)]
    assert [target for target in targets if target and not (page.parent / target).exists()] == []


def test_no_fonts_from_other_hosts():
    assert re.search(r"^  font: false", CONFIG, re.MULTILINE)


@pytest.mark.skipif(find_spec("material") is None, reason="needs mkdocs-material: make docs")
def test_it_builds_without_warnings_and_loads_nothing_from_other_hosts(tmp_path):
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    ran = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stderr
    page = (tmp_path / "architecture.html").read_text()
    assert not re.findall(r'<(?:script|link|img)[^>]+(?:src|href)="(?:https?:)?//[^"]+"', page)
    assert 'src="assets/mermaid.min.js"' in page
