"""Entry for pyinfra: the hosts of SGLANG_INVENTORY, answering what CONVERGE_ANSWER has recorded."""

from benchmarks.converging.fleet import answer_for_ssh as _answer_for_ssh
from roles.entry.hosts import pyinfra_hosts as _pyinfra_hosts

_answer_for_ssh()
hosts = _pyinfra_hosts()
