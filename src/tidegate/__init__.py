"""Tidegate: GPU scheduling for AI work on Kubernetes. Measure the tide, then open the gate.

    import tidegate

    run = tidegate.simulate("jobs.csv", nodes="26x8")
    print(run)
    print(run.explain("job-7"))

What is used is imported when it is used: `import tidegate` alone loads nothing else. docs/python.md is a tutorial,
docs/api.md lists everything.
"""

__version__ = "0.1.0"

#: The module of each public name; __init__.pyi has the same names, for type checkers.
_MODULES = {
    "CapacityPlan": "api.plan",
    "Comparison": "api.comparison",
    "Engine": "api.engine",
    "EngineStep": "api.engine",
    "JobDecision": "journal.job_decisions",
    "JobExplanation": "api.explanation",
    "JournalReader": "api.journal",
    "MeasuredDemand": "api.demand",
    "Simulation": "api.simulation",
    "SourceData": "api.source_data",
    "TidegateError": "model.errors",
    "UserError": "model.errors",
    "compare": "api.comparison",
    "explain": "api.journal",
    "measure_demand": "api.demand",
    "plan": "api.plan",
    "read_journal": "api.journal",
    "read_source": "api.source_data",
    "simulate": "api.simulation",
}

__all__ = [*_MODULES]  # noqa: PLE0604  they are strings


def __getattr__(name: str) -> object:
    """Import a public name when it is used first."""
    from importlib import import_module

    if name not in _MODULES:
        raise AttributeError(f"module 'tidegate' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"tidegate.{_MODULES[name]}"), name)
    return value


def __dir__() -> list[str]:
    """The public names."""
    return [*__all__, "__version__"]
