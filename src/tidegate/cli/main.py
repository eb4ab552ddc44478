"""The command line: every command, and nothing else.

Must not know: what commands do.
"""

from __future__ import annotations

from typing import Annotated

import typer

import tidegate
from tidegate.cli.check import check
from tidegate.cli.compare import compare_policies
from tidegate.cli.demand import demand_app
from tidegate.cli.doctor import doctor
from tidegate.cli.explain import explain_job
from tidegate.cli.install import install
from tidegate.cli.plan import plan
from tidegate.cli.preflight import preflight
from tidegate.cli.queues import show_queues
from tidegate.cli.run import run_live
from tidegate.cli.shadow_report import shadow_report
from tidegate.cli.shared_options import RenamedOptions
from tidegate.cli.simulate import simulate
from tidegate.cli.sources import show_sources
from tidegate.cli.uninstall import uninstall

app = typer.Typer(
    name="tidegate",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:  # noqa: FBT001 - typer calls it so
    if wanted:
        typer.echo(f"tidegate {tidegate.__version__}")
        raise typer.Exit


@app.callback()
def main(
    *,
    version: Annotated[
        bool, typer.Option("--version", help="Say the version.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """GPU scheduling for AI work on Kubernetes: measure the demand, provision to its shape, enforce.

    \b
    Examples:
      tidegate preflight jobs.csv        four questions about the demand, answered from data
      tidegate plan jobs.csv             what to own, to book and to leave to burst
      tidegate simulate                  the twin on a bundled week of a mixed team cluster
      tidegate explain train-018         why a job of that run waited
      tidegate queues                    who owns, uses, borrows and lends what
      tidegate run --policy kueue        watch a cluster, and say what would be decided
      tidegate shadow-report shadow.db   and what that would have saved
      tidegate doctor --context prod     is a cluster ready?
      tidegate install --dry-run         what a cluster needs, ready to apply
      tidegate uninstall --dry-run       what would go, and what would be left
      tidegate check tidegate.yaml       is a file right?
      tidegate sources jobs.csv          what does a file of jobs hold?
    """  # noqa: D301 - \b keeps the lines apart


app.command()(preflight)
app.command()(plan)
app.command()(simulate)
app.command("compare")(compare_policies)
app.command("explain")(explain_job)
app.command("queues")(show_queues)
app.command("run", cls=RenamedOptions)(run_live)
app.command(cls=RenamedOptions)(install)
app.command()(uninstall)
app.command()(doctor)
app.command("shadow-report")(shadow_report)
app.command()(check)
app.command("sources")(show_sources)
app.add_typer(demand_app)
