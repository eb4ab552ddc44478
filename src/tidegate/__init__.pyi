from tidegate.api.comparison import Comparison as Comparison
from tidegate.api.comparison import compare as compare
from tidegate.api.demand import MeasuredDemand as MeasuredDemand
from tidegate.api.demand import measure_demand as measure_demand
from tidegate.api.engine import Engine as Engine
from tidegate.api.engine import EngineStep as EngineStep
from tidegate.api.explanation import JobExplanation as JobExplanation
from tidegate.api.journal import JournalReader as JournalReader
from tidegate.api.journal import explain as explain
from tidegate.api.journal import read_journal as read_journal
from tidegate.api.plan import CapacityPlan as CapacityPlan
from tidegate.api.plan import plan as plan
from tidegate.api.simulation import Simulation as Simulation
from tidegate.api.simulation import simulate as simulate
from tidegate.api.source_data import SourceData as SourceData
from tidegate.api.source_data import read_source as read_source
from tidegate.journal.job_decisions import JobDecision as JobDecision
from tidegate.model.errors import TidegateError as TidegateError
from tidegate.model.errors import UserError as UserError

__version__: str
__all__ = [
    "CapacityPlan",
    "Comparison",
    "Engine",
    "EngineStep",
    "JobDecision",
    "JobExplanation",
    "JournalReader",
    "MeasuredDemand",
    "Simulation",
    "SourceData",
    "TidegateError",
    "UserError",
    "compare",
    "explain",
    "measure_demand",
    "plan",
    "read_journal",
    "read_source",
    "simulate",
]
