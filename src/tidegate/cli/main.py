"""The command line: every command. A command's module is imported when the command is used."""

from __future__ import annotations

from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup

import tidegate

_SETTINGS: dict[str, Any] = {"rich_markup_mode": None, "context_settings": {"help_option_names": ["-h", "--help"]}}


class _Command(NamedTuple):
    """Where a command is defined, and the first sentence of its help."""

    place: str  # module below tidegate.cli, and the function or app in it
    help: str


_COMMANDS = {
    "preflight": _Command(
        "preflight:preflight",
        "Measure the demand: four questions and seven inputs, each answered from data or marked as an assumption.",
    ),
    "plan": _Command("plan:plan", "Plan capacity: what to own, what to book by the hour, and what to leave to burst."),
    "simulate": _Command(
        "simulate:simulate", "Run a policy on jobs in the twin, and report waits, completion times and GPU use."
    ),
    "compare": _Command(
        "compare:compare_policies",
        "Run several policies on the same jobs and show them side by side, as ratios to the first.",
    ),
    "explain": _Command(
        "explain:explain_job", "Show why a job waits or what became of it, and what would change that."
    ),
    "queues": _Command(
        "queues:show_queues", "Show the tree of cohorts and queues: quota, use, borrowing, lending, and what waits."
    ),
    "run": _Command("run:run_live", "Run Tidegate in a cluster, until SIGTERM."),
    "install": _Command(
        "install:install", "Install Tidegate in a cluster: with --dry-run print all objects, without it apply them."
    ),
    "uninstall": _Command(
        "uninstall:uninstall",
        "Remove Tidegate from a cluster: admission policies, the program, what it wrote into work, its own objects.",
    ),
    "doctor": _Command(
        "doctor:doctor",
        "Check a cluster: version, kinds, permissions, clocks, a running Kueue, the Lease, the policy, "
        "the admission gate.",
    ),
    "shadow-report": _Command(
        "shadow_report:shadow_report",
        "Say what Tidegate would have done differently from what happened, and what that would have saved.",
    ),
    "check": _Command("check:check", "Check tidegate.yaml files and folders of manifests, and show what they contain."),
    "sources": _Command(
        "sources:show_sources", "Show how sources are read: format, columns, row counts, and errors by row."
    ),
    "demand": _Command("demand:demand_app", "Compare, sample and forecast demand models."),
}


class _Commands(dict[str, Any]):
    """Commands by name; each is imported when it is looked up."""

    def __init__(self) -> None:
        super().__init__(dict.fromkeys(_COMMANDS))

    def __getitem__(self, name: str) -> Any:
        if super().__getitem__(name) is None:
            self[name] = _load(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The command, or the default."""
        return self[name] if name in self else default  # noqa: SIM401  get is what this defines

    def values(self) -> Any:
        """All commands."""
        return [self[name] for name in self]


class SectionedCommand(TyperCommand):
    """A command whose options stand in sections of the help."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments, the command's own options, and sections of others."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                usual = "Arguments" if parameter.param_type_name == "argument" else "Options"
                sections.setdefault(getattr(parameter, "rich_help_panel", None) or usual, []).append(record)
        for name, records in sections.items():
            if records:
                with formatter.section(name):
                    formatter.write_dl(records)


def _load(name: str) -> Any:
    module, _, attribute = _COMMANDS[name].place.partition(":")
    found = getattr(import_module(f"tidegate.cli.{module}"), attribute)
    if isinstance(found, typer.Typer):
        return typer.main.get_command(found)
    one = typer.Typer(add_completion=False, **_SETTINGS)
    one.command(name, cls=SectionedCommand)(found)
    return typer.main.get_command(one)


class _LazyGroup(TyperGroup):
    """A group whose help does not import its commands."""

    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.commands = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the name and the first sentence of each command."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.help) for name, command in _COMMANDS.items()])


app = typer.Typer(name="tidegate", no_args_is_help=True, pretty_exceptions_enable=False, cls=_LazyGroup, **_SETTINGS)


def _print_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(f"tidegate {tidegate.__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """GPU scheduling for AI work on Kubernetes: measure the demand, provision to its shape, enforce.

    \b
    Examples:
      tidegate preflight jobs.csv        measure the demand of these jobs
      tidegate plan jobs.csv             plan capacity for them
      tidegate simulate jobs.csv         run them in the twin
      tidegate simulate                  run a bundled week of a mixed team cluster
      tidegate explain train-018         show why a job of that run waited
      tidegate queues                    show quota, use, borrowing and lending
      tidegate run --policy kueue        watch a cluster, and report what Tidegate would decide
      tidegate shadow-report shadow.db   report what that would have saved
      tidegate doctor --context prod     check whether a cluster is ready
      tidegate install --dry-run         print what a cluster needs, ready to apply
      tidegate uninstall --dry-run       print what would be removed, and what would stay
      tidegate check tidegate.yaml       check a file
      tidegate sources jobs.csv          show how a file of jobs is read
    """  # noqa: D301 - \b keeps the lines apart
