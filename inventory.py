"""Entry for pyinfra: `pyinfra inventory.py deploys/sglang.py`.

Reads inventory/hosts.yml, or the file that SGLANG_INVENTORY names. Each host's data holds
sglang_host (its HostSpec, or None) and sglang_errors (what is wrong with it): a deploy fails
such a host, and only it, before it is touched.
"""

from roles.spec.entry import pyinfra_hosts as _pyinfra_hosts

hosts = _pyinfra_hosts()
