"""Stop the engines and take away what was put on the host; never weights, never units of others.

`--data engine=NAME` takes one engine away, also one that is no longer in the inventory.
"""

from roles.stages import existing_host, remove_engines

if host := existing_host("remove"):
    remove_engines(host)
