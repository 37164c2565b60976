"""Prove that the GPUs of engines that are down add up, and keep that for `nccl.profile: auto`.

pyinfra inventory.py deploys/collective.py --limit HOST      (after deploys/stop.py)
"""

from roles.stages import collectives, existing_host

if host := existing_host("collective"):
    collectives(host)
