"""Prometheus and node_exporter, as `monitoring` in the inventory says; no engine is touched.

pyinfra inventory.py deploys/monitoring.py --dry --diff
"""

from roles.stages import existing_host, monitor

if host := existing_host("monitoring"):
    monitor(host)
