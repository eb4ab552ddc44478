"""Findings about sources: stable codes, how often, and where first."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from tidegate.model.errors import UserError
from tidegate.model.problem import shortened

#: Places that are named for one finding; the rest is counted.
MOST_PLACES = 3


class Effect(StrEnum):
    """What happens to the rows of a finding."""

    DROPPED = "dropped"  # the rows are left out
    CORRECTED = "corrected"  # the rows are kept, with a value that was corrected
    REPORTED = "reported"  # the rows are kept as they are


class CodeSpec(NamedTuple):
    """What a code means."""

    effect: Effect
    what: str  # of one row or cell, as text after a count
    lift: str  # what to do about it
    strict: bool = True  # `strict` refuses a source with it


class Code(StrEnum):
    """What can be found; the names are stable."""

    UNREADABLE_LINE = "unreadable-line"
    UNREADABLE_CELL = "unreadable-cell"
    MISSING_VALUE = "missing-value"
    DUPLICATE_ID = "duplicate-id"
    DUPLICATE_ROW = "duplicate-row"
    END_BEFORE_START = "end-before-start"
    START_BEFORE_SUBMIT = "start-before-submit"
    NEGATIVE_DURATION = "negative-duration"
    ZERO_GPUS = "zero-gpus"
    NEGATIVE_AMOUNT = "negative-amount"
    OUT_OF_RANGE = "out-of-range"
    END_IN_FUTURE = "end-in-future"
    CLOCK_JUMP = "clock-jump"
    GAP = "gap"
    TIME_ZONE_MISSING = "time-zone-missing"
    TIME_ZONES_MIXED = "time-zones-mixed"
    UNIT_ASSUMED = "unit-assumed"
    SUBMISSION_MISSING = "submission-missing"
    START_MISSING = "start-missing"
    DURATION_MISSING = "duration-missing"
    JOB_STEP = "job-step"
    OWNED_OBJECT = "owned-object"
    OBJECT_LEFT_OUT = "object-left-out"
    FILE_LEFT_OUT = "file-left-out"
    EMPTY = "empty"
    METRIC_RENAMED = "metric-renamed"
    METRIC_MISSING = "metric-missing"
    SERIES_SHARED = "series-shared"


_D, _M, _R = Effect.DROPPED, Effect.CORRECTED, Effect.REPORTED

#: What each code means.
CODES: dict[Code, CodeSpec] = {
    Code.UNREADABLE_LINE: CodeSpec(
        _D, "lines that do not have the columns of the header", "quote values that contain the delimiter"
    ),
    Code.UNREADABLE_CELL: CodeSpec(_D, "rows with a cell that cannot be read", "correct the cells, or map the column"),
    Code.MISSING_VALUE: CodeSpec(_D, "rows without a value that is needed", "export them again with that column"),
    Code.DUPLICATE_ID: CodeSpec(_D, "rows whose id was there before", "the first row of an id is kept"),
    Code.DUPLICATE_ROW: CodeSpec(
        _D, "rows that another source has too: the same thing at the same time", "export times that do not overlap"
    ),
    Code.END_BEFORE_START: CodeSpec(_D, "jobs that end before they start", "were the columns mixed up? Map them"),
    Code.START_BEFORE_SUBMIT: CodeSpec(
        _M, "jobs that start before they are submitted: taken as submitted at their start", "compare the clocks"
    ),
    Code.NEGATIVE_DURATION: CodeSpec(_D, "rows with a duration below zero", "map the right column"),
    Code.ZERO_GPUS: CodeSpec(_D, "jobs without a GPU", "nothing, if they use CPUs only", strict=False),
    Code.NEGATIVE_AMOUNT: CodeSpec(_D, "rows with an amount below zero", "map the right column"),
    Code.OUT_OF_RANGE: CodeSpec(
        _D, "rows with a value that cannot be: a time before 1990 or after 2100, a job of ten years, 100,000 GPUs",
        "say the unit of the column: --map submitted=created:ms",
    ),
    Code.END_IN_FUTURE: CodeSpec(
        _R, "jobs that end long after every other time, while others still run or wait: not when jobs were last seen",
        "compare the clocks, or correct the end",
    ),
    Code.CLOCK_JUMP: CodeSpec(
        _R, "rows that go back in time by more than a minute in a file that is otherwise in order",
        "was a clock set back, or summer time ended? Say --timezone",
    ),
    Code.GAP: CodeSpec(
        _R, "periods without any row", "was nothing recorded there, or did nothing happen?", strict=False
    ),
    Code.TIME_ZONE_MISSING: CodeSpec(
        _R, "columns of times without a zone: taken as UTC", "say --timezone", strict=False
    ),
    Code.TIME_ZONES_MIXED: CodeSpec(
        _R, "times without a zone, in a column where others have one: taken as UTC", "say --timezone"
    ),
    Code.UNIT_ASSUMED: CodeSpec(
        _R, "columns whose unit is not said", "say it: --map duration=runtime:ms", strict=False
    ),
    Code.SUBMISSION_MISSING: CodeSpec(
        _R, "jobs whose submission is not recorded: taken as submitted at their start, waits are not known",
        "export the time of submission", strict=False,
    ),
    Code.START_MISSING: CodeSpec(
        _R, "jobs whose start is not recorded: the time from submission to end counts as runtime, waits included",
        "export the time of the start, or how long jobs ran", strict=False,
    ),
    Code.DURATION_MISSING: CodeSpec(
        _R, "jobs that do not say how long they ran", "nothing, if they still wait or run", strict=False
    ),
    Code.JOB_STEP: CodeSpec(_D, "steps of jobs: the job's own row counts", "export with sacct -X", strict=False),
    Code.OWNED_OBJECT: CodeSpec(_D, "objects that another one speaks for", "nothing", strict=False),
    Code.OBJECT_LEFT_OUT: CodeSpec(_D, "objects that say nothing about demand", "nothing", strict=False),
    Code.FILE_LEFT_OUT: CodeSpec(_D, "files that are not read", "name them alone, or move them away", strict=False),
    Code.EMPTY: CodeSpec(_R, "sources without a row", "export them again"),
    Code.METRIC_RENAMED: CodeSpec(_R, "metrics read by an older or other name", "nothing", strict=False),
    Code.METRIC_MISSING: CodeSpec(
        _R, "metrics that the server does not have", "scrape them, if that part is used", strict=False
    ),
    Code.SERIES_SHARED: CodeSpec(
        _R, "GPUs with several pods at a time: their busy time is that of the device",
        "give pods whole GPUs or MIG slices to tell them apart", strict=False,
    ),
}  # fmt: skip


#: Rows that are dropped because others say the same: nothing is lost.
_TWICE = {Code.DUPLICATE_ID, Code.DUPLICATE_ROW}


class CellPlace(NamedTuple):
    """Where something was found: a line of a file, a row of a table without lines, or something named."""

    number: int = 0
    column: str = ""
    found: str = ""


class SourceFinding(NamedTuple):
    """One code, in one source: how often, and where first."""

    code: Code
    source: str
    times: int
    places: tuple[CellPlace, ...] = ()
    word: str = "line"  # what the numbers of places count
    more: str = ""  # further text

    @property
    def spec(self) -> CodeSpec:
        """What the code means."""
        return CODES[self.code]

    @property
    def loses(self) -> int:
        """Rows of demand that are lost: not those that say nothing about it, or that another row says."""
        lost = self.spec.effect is Effect.DROPPED and self.spec.strict and self.code not in _TWICE
        return self.times if lost else 0

    def text(self) -> str:
        """Say it on one line: `jobs.csv:17: 3 dropped: jobs that end before they start; line 17 end='5' [end-…]`."""
        where = f"{self.source}:{self.places[0].number}" if self.places and self.places[0].number else self.source
        rest = [self._place_text(place) for place in self.places if place.number or place.column]
        seen = f"; {', '.join(rest)}" if rest else ""
        more = f"; {self.more}" if self.more else ""
        return f"{where}: {self.times:,} {self.spec.effect}: {self.spec.what}{seen}{more} [{self.code}]"

    def _place_text(self, place: CellPlace) -> str:
        number = f"{self.word} {place.number}" if place.number else ""
        cell = f"{place.column}={shortened(place.found)}" if place.found else place.column
        return " ".join(part for part in (number, cell) if part)


class SourceError(UserError):
    """A source that cannot be used; the text says where, what was found, what was expected and what to do."""


def refuse_findings(findings: list[SourceFinding]) -> None:
    """Refuse what `strict` refuses."""
    wrong = [finding.text() for finding in findings if finding.spec.strict]
    if wrong:
        raise SourceError("\n".join([*wrong, "--strict: nothing may be dropped or corrected"]))
