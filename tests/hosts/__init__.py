"""Container hosts: machines with systemd and sshd to deploy to, where no spare machine is at hand."""
