"""Only the kernels: for tests whose hosts have their environments already."""

from roles.stages import desired_host, prepare_host, prepare_kernels

if host := desired_host("kernel"):
    prepare_host(host)
    prepare_kernels(host)
