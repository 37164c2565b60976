"""From whatever a host runs now to the engines that the inventory describes, proven to serve.

pyinfra inventory.py deploys/sglang.py            (asks before it changes anything)
pyinfra inventory.py deploys/sglang.py --dry --diff
"""

from roles.stages import (
    desired_host,
    nothing_to_do,
    preflight,
    prepare_engines,
    prepare_host,
    prepare_kernels,
    remove_gone,
    roll_out,
)

if host := desired_host("sglang"):
    preflight(host)
    if not nothing_to_do(host):
        prepare_host(host)
        prepare_engines(host)
        prepare_kernels(host)
        roll_out(host)
        remove_gone(host)
