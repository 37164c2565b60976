"""Only the kernels: for tests whose hosts have their environments already."""

from roles.host.deploy import prepare_host
from roles.job import begin
from roles.kernel.deploy import prepare_kernels

if job := begin("kernel"):
    prepare_host(job)
    prepare_kernels(job)
