"""A report of a .pth file is left out whole, and nothing else is."""

from __future__ import annotations

from sglangctl.util import site_reports

REPORT = """\
Error processing line 1 of /opt/sglang/venvs/x/lib/python3.12/site-packages/nvidia_cutlass_dsl_packages.pth:

  Traceback (most recent call last):
    File "<frozen site>", line 206, in addpackage
    File "<string>", line 1, in <module>
  ModuleNotFoundError: No module named 'nvidia_cutlass_dsl'

Remainder of file ignored
"""
"""As two H200s printed it, four times in one run."""


def test_a_report_is_left_out() -> None:
    mine = ["NCCL WARN Cuda failure", "  indented, of somebody else", "", "Error: last"]
    lines = [mine[0], *REPORT.splitlines(), *REPORT.splitlines(), *mine[1:]]
    assert list(site_reports.without(lines)) == mine


def test_one_that_is_cut_hides_nothing_behind_it() -> None:
    begin = REPORT.splitlines()[:3]
    assert list(site_reports.without([*begin, "RuntimeError: mine"])) == ["RuntimeError: mine"]
    endless = [begin[0], *["  x"] * 40]
    assert len(list(site_reports.without(endless))) == 40 - site_reports.LINES
