"""What users test their projects and upstreams with."""

from headrace.testing.contract.broker import Broker as Broker
from headrace.testing.contract.suite import SourceContract as SourceContract
from headrace.testing.project_run import DeadLetter as DeadLetter
from headrace.testing.project_run import ProjectResult as ProjectResult
from headrace.testing.project_run import run_project as run_project

__all__: list[str]
