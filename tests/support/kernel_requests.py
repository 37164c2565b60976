"""Requests of a kernel's build, each whole."""

from __future__ import annotations

from sglangctl.sgl_kernel import key
from sglangctl.sgl_kernel.build import request


def inputs(**changes: object) -> key.Inputs:
    values: dict = {
        "commit": "a" * 40,
        "patches": (),
        "torch": "2.14.1+cu130",
        "cuda": "13.0",
        "python": "cp312",
        "machine": "x86_64",
        "arch": "120a",
        "flags": request.cmake_flags("120a"),
    }
    return key.Inputs(**{**values, **changes})


def a_request(**changes: object) -> request.Request:
    made = inputs()
    values: dict = {"key": key.make(made), "inputs": made, "git_url": "https://example.org/x.git"}
    return request.Request(**{**values, **changes})
