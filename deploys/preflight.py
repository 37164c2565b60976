"""Everything that would stop a deploy, of all hosts at once; changes nothing."""

from roles.stages import desired_host, report_preflight

if host := desired_host("preflight"):
    report_preflight(host)
