"""Loads its library as sgl-kernel does: torch first, then the folder of this GPU."""

import ctypes
import glob
import os

import torch

__version__ = "0.4.10"
_folder = "sm100"
if torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0):
    _folder = "sm90"
_found = sorted(glob.glob(os.path.join(os.path.dirname(__file__), _folder, "common_ops.*.so")))
if not _found:
    raise ImportError("[sgl_kernel] CRITICAL: Could not load any common_ops library!")
try:
    _ops = ctypes.CDLL(_found[0])
except OSError as error:
    raise ImportError(str(error)) from error
_ops.silu_and_mul.restype = ctypes.c_char_p


def silu_and_mul(x):
    """silu(a) * b of [a | b], float16."""
    rows, width = x.shape[0], x.shape[1] // 2
    out = torch.empty(rows, width, device=x.device, dtype=x.dtype)
    error = _ops.silu_and_mul(
        ctypes.c_void_p(out.data_ptr()), ctypes.c_void_p(x.data_ptr()), rows, width
    )
    if error:
        raise RuntimeError(f"CUDA error: {error.decode()}")
    return out
