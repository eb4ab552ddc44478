"""Options that say which namespaces are managed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tidegate.cli.errors import CommandError

if TYPE_CHECKING:
    from tidegate.kube.mirror.namespaces import NamespaceRule

NamespaceSelectorOption = Annotated[
    str,
    typer.Option(
        metavar="SELECTOR",
        help="Labels of the namespaces that are managed, as in kubectl, or Kueue's managedJobsNamespaceSelector as "
        "JSON; default: all but kube-system.",
        show_default=False,
    ),
]
ExcludeNamespaceOption = Annotated[
    list[str] | None,
    typer.Option(metavar="NAME", help="A namespace that is not managed; may be repeated.", show_default=False),
]


def namespace_rule(selector: str, excluded: list[str] | None) -> NamespaceRule:
    """The rule that options name."""
    from tidegate.kube.mirror.namespaces import SelectorError, read_rule

    try:
        return read_rule(selector, tuple(excluded or ()))
    except SelectorError as error:
        raise CommandError(str(error)) from None
