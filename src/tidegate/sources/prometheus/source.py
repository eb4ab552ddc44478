"""Reads a Prometheus server into the canonical tables: lists its metrics first, then queries those."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tidegate.manifests.timestamps import read_time_ms
from tidegate.model.units import DAY_MS, MINUTE_MS, UnitError, parse_duration_ms
from tidegate.sources.findings import Code, SourceError, SourceFinding
from tidegate.sources.options import CanonicalTable, Format, ReportProgress, SourceOptions, no_progress
from tidegate.sources.prometheus.demand_tables import MetricReader, capacity_of, jobs_of, requests_of, starts_of, use_of
from tidegate.sources.prometheus.http_client import PrometheusServer, request, server_of
from tidegate.sources.prometheus.metric_names import Metric, every_metric
from tidegate.sources.prometheus.range_query import RangeQuery, ResponseCache, TimeRange
from tidegate.sources.source_result import SourceTable, source_table

#: How far back is asked for where nothing is said, and the step of it.
_USUAL_SPAN_MS, _USUAL_STEP_MS = 7 * DAY_MS, MINUTE_MS


def read_prometheus(
    address: str, options: SourceOptions, server: PrometheusServer | None = None, watch: ReportProgress = no_progress
) -> list[SourceTable]:
    """The tables of what a server has; a SourceError says why there are none."""
    server = server or server_of(address, options)
    names = _names(server)
    span = read_span(server, options)
    store = ResponseCache(options.cache)
    had = MetricReader(RangeQuery(server, span, store, watch), names)
    makers = {
        CanonicalTable.USE: use_of,
        CanonicalTable.REQUESTS: requests_of,
        CanonicalTable.CAPACITY: capacity_of,
        CanonicalTable.JOBS: jobs_of,
        CanonicalTable.STARTS: starts_of,
    }
    parts, findings = [], []
    for table, make in makers.items():
        had.queries.clear()
        frame, said = make(had)
        findings += [finding._replace(source=server.name) for finding in said]
        if frame is not None and len(frame):
            part = source_table(server.name, Format.PROMETHEUS, table, frame)
            part = part._replace(query="; ".join(had.queries), since_ms=span.start_ms, until_ms=span.end_ms)
            parts.append(part)
    store.finish()
    if not parts:
        raise SourceError(_nothing_text(server, names, span))
    findings += _said(server.name, names, had)
    parts[0] = parts[0]._replace(findings=(*parts[0].findings, *findings))
    return parts


def _names(server: PrometheusServer) -> frozenset[str]:
    """The metrics that a server has."""
    data = request(server, "/api/v1/label/__name__/values", {})
    return frozenset(str(name) for name in data) if isinstance(data, list) else frozenset()


def _nothing_text(server: PrometheusServer, names: frozenset[str], span: TimeRange) -> str:
    known = sum(name in names for signal in every_metric() for name in signal.names)
    if known:
        hours = (span.end_ms - span.start_ms) / 3_600_000
        return f"{server.name}: has nothing in the {hours:,.0f} hours that were asked for; say --start and --end"
    return (
        f"{server.name}: has {len(names):,} metrics, and none of DCGM, vLLM, SGLang, TGI, kube-state-metrics, Kueue or "
        "Karpenter; does it scrape them?"
    )


def _said(name: str, names: frozenset[str], had: MetricReader) -> Iterable[SourceFinding]:
    """Which metrics go by older names, and which are not there."""
    older = sorted(f"{found} for {signal.names[0]}" for signal, found in had.older.items())
    if older:
        yield SourceFinding(Code.METRIC_RENAMED, name, len(older), more=", ".join(older))
    missing = [signal for signal in every_metric() if signal.needed and not _has(signal, names)]
    if missing:
        listed = ", ".join(f"{signal.names[0]} ({signal.needed})" for signal in missing)
        yield SourceFinding(Code.METRIC_MISSING, name, len(missing), more=listed)


def _has(signal: Metric, names: frozenset[str]) -> bool:
    return any(name in names for name in signal.names)


# -- when ------------------------------------------------------------------------------------------------------


def read_span(server: PrometheusServer, options: SourceOptions) -> TimeRange:
    """From when to when is asked for: as said, or the last week by the server's clock."""
    step = _duration("--step", options.step) if options.step else 0
    end = _moment("--end", options.end, 0) if options.end else _server_now(server)
    start = _moment("--start", options.start, end) if options.start else end - _USUAL_SPAN_MS
    if start >= end:
        raise SourceError(f"--start {options.start}: expected a time before the end")
    if not step:
        step = _USUAL_STEP_MS if end - start <= _USUAL_SPAN_MS else 5 * _USUAL_STEP_MS
    return TimeRange(start, end, step)


def _server_now(server: PrometheusServer) -> int:
    data: Any = request(server, "/api/v1/query", {"query": "time()"})
    try:
        now_ms = round(float(data["result"][1]) * 1000)
    except (KeyError, IndexError, TypeError, ValueError):
        raise SourceError(f"{server.name}: does not say what time it is; say --start and --end") from None
    return now_ms - now_ms % MINUTE_MS


def _moment(option: str, text: str, end_ms: int) -> int:
    """A time, seconds since 1970, or how long before the end."""
    try:
        if text.replace(".", "", 1).isdecimal():
            return round(float(text) * 1000)
        if text[:1].isdigit() and "-" in text:
            return read_time_ms(text if "T" in text else f"{text}T00:00:00Z")
        return end_ms - parse_duration_ms(text.removeprefix("-"))
    except UnitError:
        expected = 'a time such as "2026-11-16T08:00:00Z", or how long before the end, such as "14d"'
        raise SourceError(f"{option} {text}: expected {expected}") from None


def _duration(option: str, text: str) -> int:
    try:
        found = parse_duration_ms(text)
    except UnitError as error:
        raise SourceError(f"{option} {text}: expected {error}") from None
    if found < 1000:
        raise SourceError(f"{option} {text}: expected at least 1s")
    return found
