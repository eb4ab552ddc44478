"""The tree of cohorts and queues as text and as plain data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich.console import Group as Stack
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tidegate.journal.decision_text import time_text
from tidegate.journal.quota_names import FlavorResourceName, number_text
from tidegate.measure.share_tree import BranchUse, LotUse, ShareTree
from tidegate.model.quota_limits import gpu_milli_of

#: Queues of one cohort that are shown one by one; the others as one line.
_MOST_QUEUES = 20

_NAME_WIDTH = 24

LEGEND = (
    "share: borrowed, per mille of what the cohort could lend, for its weight. lent: own quota that others use, "
    "each lender in proportion to what it has unused. A cohort has what is shared in it."
)


class QueueTreeOptions(NamedTuple):
    """What is wanted of the tree."""

    resources: bool = False  # a line for each lot
    every: bool = False  # all queues, however many
    most_lines: int | None = None  # of the table


class _Row(NamedTuple):
    branch: BranchUse | None  # None: several queues together
    name: str
    depth: int
    lots: tuple[LotUse, ...]
    waiting: int
    admitted: int


def page(tree: ShareTree, shown: QueueTreeOptions) -> RenderableType:
    """The tree as a page."""
    title = Text.assemble(("Queues", "bold cyan"), (f"  {time_text(tree.at_ms)}", "dim"))
    if not tree.branches:
        nothing = "This run has no queues with quota: work is placed in one line. Give the policy queues to share by."
        return Stack(title, Text(nothing))
    rows = _rows(tree, shown)
    if shown.most_lines is not None and len(rows) > shown.most_lines:
        rows, left = rows[: shown.most_lines], len(rows) - shown.most_lines
        return Stack(title, Text(), _table(rows, tree, shown), Text(f"{left:,} more lines", "dim"))
    return Stack(title, Text(), _table(rows, tree, shown), Text(LEGEND, "dim"))


# -- rows ------------------------------------------------------------------------------------------------------


def _rows(tree: ShareTree, shown: QueueTreeOptions) -> list[_Row]:
    """One row a branch; queues of a cohort that has very many in one, but for those where most is going on."""
    siblings: dict[str, list[BranchUse]] = {}
    for branch in tree.branches:
        if branch.is_queue:
            siblings.setdefault(branch.parent, []).append(branch)
    rows: list[_Row] = []
    told: dict[str, frozenset[str]] = {parent: _worth_telling(queues, shown) for parent, queues in siblings.items()}
    for branch in tree.branches:
        if not branch.is_queue or branch.name in told[branch.parent]:
            rows.append(_row(branch))
        if branch.is_queue and branch is siblings[branch.parent][-1]:
            rows += _rest([queue for queue in siblings[branch.parent] if queue.name not in told[branch.parent]])
    return rows


def _row(branch: BranchUse) -> _Row:
    return _Row(branch, branch.name, branch.depth, branch.lots, branch.waiting, branch.admitted)


def _worth_telling(queues: list[BranchUse], shown: QueueTreeOptions) -> frozenset[str]:
    """The names of the queues that are shown: all, or those with most waiting, borrowed and used."""
    if shown.every or len(queues) <= _MOST_QUEUES + 1:
        return frozenset(queue.name for queue in queues)
    busiest = sorted(queues, key=lambda queue: (-queue.waiting, -_gpus(queue.lots, "borrowed"), -queue.admitted))
    return frozenset(queue.name for queue in busiest[:_MOST_QUEUES])


def _rest(queues: list[BranchUse]) -> list[_Row]:
    """The queues that are not shown, together."""
    if not queues:
        return []
    sums: dict[FlavorResourceName, LotUse] = {}
    for use in (use for queue in queues for use in queue.lots):
        known = sums.get(use.lot)
        sums[use.lot] = use if known is None else _sum(known, use)
    waiting, admitted = sum(queue.waiting for queue in queues), sum(queue.admitted for queue in queues)
    name = f"{len(queues):,} more (--all)"
    return [_Row(None, name, queues[0].depth, tuple(sums[lot] for lot in sorted(sums)), waiting, admitted)]


def _sum(a: LotUse, b: LotUse) -> LotUse:
    return a._replace(
        nominal=a.nominal + b.nominal,
        shared=a.shared + b.shared,
        used=a.used + b.used,
        borrowed=a.borrowed + b.borrowed,
        lent=a.lent + b.lent,
    )


# -- the table -------------------------------------------------------------------------------------------------


def _gpus(lots: Sequence[LotUse], field: str) -> int:
    """A sum over all lots of GPUs, in milli."""
    return sum(getattr(use, field) * gpu_milli_of(use.lot.resource) for use in lots)


def _table(rows: list[_Row], tree: ShareTree, shown: QueueTreeOptions) -> Table:
    counts_gpus = any(gpu_milli_of(use.lot.resource) for branch in tree.branches for use in branch.lots)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("queue", no_wrap=True, max_width=_NAME_WIDTH, overflow="ellipsis")
    for name in ("quota", "used", "borrowed", "lent", "share", "waiting", "admitted"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*_cells(row, counts_gpus=counts_gpus))
        if shown.resources or not counts_gpus:
            for use in row.lots:
                table.add_row(*_lot_cells(use, row.depth + 1))
    return table


def _cells(row: _Row, *, counts_gpus: bool) -> list[Text]:
    branch = row.branch
    style = "bold" if branch is not None and not branch.is_queue else "dim" if branch is None else ""
    closed = " (stopped)" if branch is not None and branch.closed else ""
    name = Text("  " * row.depth + row.name + closed, style)
    fields = ("shared", "used", "borrowed", "lent")
    amounts = [number_text("gpu", _gpus(row.lots, field)) if counts_gpus else "" for field in fields]
    return [
        name,
        *(_cell(amount, field) for amount, field in zip(amounts, fields, strict=True)),
        _share(branch),
        Text(f"{row.waiting:,}", "yellow" if row.waiting else "dim"),
        Text(f"{row.admitted:,}", "" if row.admitted else "dim"),
    ]


def _cell(amount: str, field: str) -> Text:
    """A number; nothing stands out less than zero."""
    style = {"borrowed": "magenta", "lent": "green"}.get(field, "")
    return Text(amount, "dim" if amount in ("0", "") else style)


def _share(branch: BranchUse | None) -> Text:
    if branch is None or not branch.parent:
        return Text("")
    if branch.share is None:
        return Text("no weight", "dim")
    return Text(f"{branch.share:,.0f}", "" if branch.share else "dim")


def _lot_cells(use: LotUse, depth: int) -> list[Text]:
    name = Text(f"{'  ' * depth}{use.lot.flavor} {use.lot.resource}", "dim")
    fields = ("shared", "used", "borrowed", "lent")
    return [name, *(_cell(number_text(use.lot.resource, getattr(use, field)), field) for field in fields)]


# -- for programs ----------------------------------------------------------------------------------------------


def as_json(tree: ShareTree) -> dict[str, Any]:
    """The tree as plain data; amounts in the units that quota is counted in."""
    return {
        "at_ms": tree.at_ms,
        "branches": [
            {
                **branch._asdict(),
                "lots": [{**use.lot._asdict(), **_without_lot(use)} for use in branch.lots],
            }
            for branch in tree.branches
        ],
    }


def _without_lot(use: LotUse) -> dict[str, Any]:
    return {name: value for name, value in use._asdict().items() if name != "lot"}
