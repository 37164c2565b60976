"""From whatever a host runs now to the engines that the inventory describes, proven to serve.

pyinfra inventory.py deploys/sglang.py            (asks before it changes anything)
pyinfra inventory.py deploys/sglang.py --dry --diff
"""

from roles.job import begin
from roles.host.deploy import prepare_host
from roles.engine.deploy import prepare_engines
from roles.kernel.deploy import prepare_kernels
from roles.switch.deploy import switch_engines
from roles.readiness.deploy import wait_until_serving

if job := begin("sglang"):
    prepare_host(job)
    prepare_engines(job)
    prepare_kernels(job)
    switch_engines(job)
    wait_until_serving(job)
