"""Writes the table of docs/install.md from the table of permissions: run it after changing that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tidegate.deploy.permissions import Permission, permissions_of
from tidegate.live.election import LeaseName
from tidegate.live.modes import Mode

PAGE = Path(__file__).parent.parent / "docs" / "install.md"
MARK = "<!-- From here on made by tests/install_file.py from src/tidegate/deploy/permissions.py: change that. -->\n"
_LEASE, _POLICY = LeaseName("tidegate", "tidegate"), "tidegate-policy"


def page() -> str:
    """The page as it should be: what was written by hand, and the table."""
    return PAGE.read_text().partition(MARK)[0] + MARK + "\n".join(_table()) + "\n"


def _table() -> Iterator[str]:
    yield "## What each mode may do\n"
    yield "*own*: in its own namespace only. A name in brackets: only the object of that name.\n"
    yield "| what for | verbs | objects | shadow | gate | bind |\n|---|---|---|---|---|---|"
    may = {mode: set(permissions_of(mode, _LEASE, _POLICY)) for mode in Mode}
    rows: dict[tuple[str, str], list[Permission]] = {}
    for grant in permissions_of(Mode.BIND, _LEASE, _POLICY):
        rows.setdefault((grant.why, ", ".join(grant.verbs)), []).append(grant)
    for (why, verbs), given in rows.items():
        allowed = " | ".join("yes" if may[mode].issuperset(given) else "" for mode in Mode)
        yield f"| {why} | {verbs} | {', '.join(map(_named, given))} | {allowed} |"


def _named(grant: Permission) -> str:
    group = f".{grant.resource.group}" if grant.resource.group else ""
    kind = f"`{grant.resource.plural}{group}{f'/{grant.part}' if grant.part else ''}`"
    only = f" ({', '.join(f'`{name}`' for name in grant.names)})" if grant.names else ""
    return f"{kind}{only}{' *own*' if grant.own else ''}"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
