"""The parts of benchmarks/converge.py: the hosts, Ansible's side, and a fleet by a recorded answer."""
