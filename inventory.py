"""Entry for pyinfra: `pyinfra inventory.py deploys/sglang.py`.

Reads inventory/hosts.yml, or the file that SGLANG_INVENTORY names. Each host's data holds
sglang_host (its HostSpec, or None), sglang_engines (their names) and sglang_mistakes (what is
wrong with it): such a host, and only it, is not connected to.
"""

from roles.entry.hosts import pyinfra_hosts as _pyinfra_hosts

hosts = _pyinfra_hosts()
