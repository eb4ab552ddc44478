"""Writes the tables of docs/sources.md from the code: run it after changing codes, fields, formats or metrics."""

from __future__ import annotations

from pathlib import Path

from tidegate.sources.field_catalog import FIELDS, NEEDS
from tidegate.sources.findings import CODES
from tidegate.sources.parse_cells import UNITS
from tidegate.sources.prometheus.metric_names import DCGM, ENGINES, KARPENTER, KUBE, KUEUE, Metric
from tidegate.sources.traces.catalog import TRACES

PAGE = Path(__file__).parent.parent / "docs" / "sources.md"
MARK = "<!-- From here on made by tests/sources_file.py from src/tidegate/sources: change that, then run this. -->\n"

#: Metrics that are gone, and what says the same now; they are in many dashboards, and none is read here.
GONE = {
    "vllm:gpu_cache_usage_perc": "vllm:kv_cache_usage_perc",
    "vllm:cpu_cache_usage_perc": "",
    "vllm:num_requests_swapped": "",
    "vllm:time_per_output_token_seconds": "vllm:request_time_per_output_token_seconds",
    "vllm:avg_prompt_throughput_toks_per_s": "vllm:prompt_tokens_total",
    "vllm:avg_generation_throughput_toks_per_s": "vllm:generation_tokens_total",
    "inference_pool_average_kv_cache_utilization": "llm_d_epp_average_kv_cache_utilization",
    "inference_pool_average_queue_size": "llm_d_epp_average_queue_size",
    "karpenter_pods_startup_duration_seconds": "karpenter_pods_provisioning_startup_duration_seconds",
}

_NAMES = """\
Names are compared without capitals, spaces and underscores, and without a unit at the end. Where several fit, the first
of the list is taken.
"""


def page() -> str:
    """The whole page: what people wrote, then what is made."""
    written = PAGE.read_text().partition(MARK)[0]
    return written + MARK + "\n".join(["", *_codes(), *_columns(), *_traces(), *_metrics()])


def _codes() -> list[str]:
    rows = [
        f"| `{code}` | {spec.effect} | {spec.what} | {'yes' if spec.strict else 'no'} | {spec.lift} |"
        for code, spec in CODES.items()
    ]
    return [
        "## Codes\n",
        "Codes are stable: a name is never used again for something else.\n",
        *["| code | rows are | what | `--strict` refuses | what to do |", "|---|---|---|---|---|", *rows, ""],
    ]


def _columns() -> list[str]:
    lines = [
        "## Columns\n",
        _NAMES,
    ]
    for table, fields in FIELDS.items():
        needs = ", and ".join(" or ".join(f"`{name}`" for name in needed) for needed in NEEDS[table])
        lines += [f"### {table}\n", f"Needed: {needs}.\n", "| field | what stands in it | names |", "|---|---|---|"]
        lines += [f"| `{one.name}` | {one.cell} | {', '.join(one.names.split())} |" for one in fields]
        lines.append("")
    units = [f"| {cell} | {', '.join(listed)} |" for cell, listed in UNITS.items()]
    return [*lines, "### Units\n", "| what stands in a column | units for `--map` |", "|---|---|", *units, ""]


def _traces() -> list[str]:
    rows = [
        f"| `{trace.format}` | {trace.table} | {', '.join(sorted(trace.header))} |"
        for trace in sorted(TRACES, key=lambda one: one.format)
    ]
    rows.append("| `genai` | use, requests, capacity, starts | a folder of .tar.gz files, one a metric |")
    return ["## Traces by name\n", "| `--format` | tables | columns by which it is known |", "|---|---|---|", *rows, ""]


def _metrics() -> list[str]:
    listed: list[tuple[str, Metric]] = [("DCGM", signal) for signal in DCGM]
    for engine in ENGINES:
        listed += [(engine.name, part) for part in engine if isinstance(part, Metric)]
    listed += [("kube-state-metrics", signal) for signal in KUBE.values()]
    listed += [("Kueue", signal) for signal in KUEUE.values()] + [("Karpenter", signal) for signal in KARPENTER]
    rows = [
        f"| {whose} | `{one.names[0]}` | {', '.join(f'`{name}`' for name in one.names[1:]) or '–'} |"  # noqa: RUF001  a dash
        for whose, one in listed
    ]
    gone = [f"| `{old}` | {f'`{now}`' if now else 'nothing'} |" for old, now in GONE.items()]
    return [
        "## Metrics\n",
        *["| of | metric | also read as |", "|---|---|---|", *rows, ""],
        "Gone, and still in many dashboards; nothing here reads them:\n",
        *["| gone | what says it now |", "|---|---|", *gone, ""],
    ]


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE}")
