"""The stages of a deploy, one function each: what deploys/ and a deploy file of your own call."""

from roles.stages.collective import collectives
from roles.stages.desired import desired_host
from roles.stages.existing import existing_host
from roles.stages.monitoring import monitor
from roles.stages.preflight_check import preflight
from roles.stages.prepare import prepare_engines, prepare_host, prepare_kernels
from roles.stages.readiness import verify, wait_until_serving
from roles.stages.report_preflight import report_preflight
from roles.stages.rollout import roll_out
from roles.stages.stop import remove_engines, rollback_engines, stop_engines
from roles.stages.switch import remove_gone, switch_engines
from roles.stages.unchanged import nothing_to_do

__all__ = [
    "collectives",
    "desired_host",
    "existing_host",
    "monitor",
    "nothing_to_do",
    "preflight",
    "prepare_engines",
    "prepare_host",
    "prepare_kernels",
    "remove_engines",
    "remove_gone",
    "report_preflight",
    "roll_out",
    "rollback_engines",
    "stop_engines",
    "switch_engines",
    "verify",
    "wait_until_serving",
]
