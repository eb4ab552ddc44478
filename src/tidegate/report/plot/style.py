"""Style of all pictures: colours for the colour-blind, and the same bytes for the same data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from tidegate.model.errors import UserError
from tidegate.report.output_files import check_writable, written_whole

#: matplotlib is not there on every machine, and its types change with its versions.
Axes = Any
Drawing = Any

#: Colours that the colour-blind can tell apart (Okabe and Ito); blue is for what is used.
PALETTE = ("#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9")
INK, FAINT, GRID = "#222222", "#767676", "#E4E4E4"
BUSY = "#0072B2"

_DPI = 100

#: Everything that would make two pictures of the same data differ, or depend on the machine's settings.
SETTINGS: Any = {
    "svg.hashsalt": "tidegate",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.edgecolor": GRID,
    "axes.labelcolor": FAINT,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "text.color": INK,
}
METADATA: dict[str, dict[str, Any]] = {".svg": {"Date": None, "Creator": None}, ".png": {"Software": None}}


class PlotError(UserError):
    """A picture that cannot be made; the text says why and what to do."""


def check_picture(path: Path) -> None:
    """Refuse a picture that could not be drawn, before there is anything to draw."""
    if path.suffix.lower() not in METADATA:
        raise PlotError(f"{path}: cannot draw '{path.suffix}'; name a file that ends in .svg or .png")
    try:
        import matplotlib as mpl  # noqa: F401 - is it there?
    except ImportError:
        raise PlotError("pictures need matplotlib: pip install 'tidegate[plot]'") from None


def check_outputs(out: Path | None, plot: Path | None, html: Path | None) -> None:
    """Refuse files that could not be written, before any work is done for them."""
    for option, path in (("--out", out), ("--plot", plot), ("--html", html)):
        if path is not None:
            check_writable(option, path)
    if plot is not None:
        check_picture(plot)


def save_picture(path: Path, draw: Callable[[], Drawing]) -> None:
    """Draw, and write what was drawn; the same data gives the same bytes."""
    check_picture(path)
    import matplotlib as mpl

    suffix = path.suffix.lower()
    with mpl.rc_context(SETTINGS):
        figure = draw()
        try:
            with written_whole(path) as part:
                figure.savefig(part, format=suffix[1:], dpi=_DPI, metadata=METADATA[suffix])
        except OSError as error:
            raise PlotError(f"{path}: cannot be written ({error.strerror}); is the folder there?") from None


def blank(size_inches: tuple[float, float]) -> Drawing:
    """A picture with nothing on it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure: Drawing = Figure(figsize=size_inches, facecolor="white")
    FigureCanvasAgg(figure)
    return figure


def calm(axes: Axes) -> None:
    """Little ink for what is not data."""
    axes.set_title(axes.get_title(), loc="left", fontsize=11, fontweight="bold", color=INK)
    axes.set_title("", loc="center")
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.tick_params(length=0)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="both", color=GRID, linewidth=0.8)
