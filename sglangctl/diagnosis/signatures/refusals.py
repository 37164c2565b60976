"""What is left of exceptions in which the engine refuses; looked at last."""

from __future__ import annotations

from sglangctl.diagnosis.signatures.base import CPU, H200, Signature, caused, raised

# An interpreter's class name before a message: "torch.AcceleratorError: CUDA error: ...".
_REFUSED = (
    r"^[\w.]*(?:RuntimeError|KeyError|TypeError)\b.*(?:divisible|not a multiple|not supported|"
    r"unsupported|Unsupported|only support|does not support)|"
    r"^[\w.]*(?:ValueError|AssertionError|NotImplementedError|ValidationError)\b.*(?:divisible|"
    r"not a multiple|support|compatible|conflict|exclusive|must |should |requires|required|"
    r"annot |can not |does not match|do not match|greater than|larger than|exceed|alidation error)"
)

SIGNATURES = caused(
    "unsupported-configuration",
    raised(
        "is not a valid JSON file",
        "OSError: It looks like the config file at '/models/m/config.json' is not a valid JSON file.",
        "Transformers 5.19",
    ),
    raised(
        "alidation error for",
        "huggingface_hub.errors.StrictDataclassFieldValidationError: Validation error for field "
        "'hidden_size':",
        "Transformers 5.19",
        r"^[\w.]*ValidationError: ",
    ),
    Signature(
        "SGLANG_CPU_OMP_THREADS_BIND is not set",
        "AssertionError: SGLANG_CPU_OMP_THREADS_BIND is not set, in this case, the total number of "
        "ranks (dp_size * tp_size * pp_size = 2) should be smaller than or equal to number of "
        "numa node on the machine 1.",
        CPU,
    ),
    Signature(
        "nvalid argument",
        "setting membind: Invalid argument",
        "numactl",
        r"^(?:numactl: )?(?:setting|set_mempolicy|mbind|sched_setaffinity)\b.{0,40}: Invalid argument",
    ),
    Signature(
        "is out of range",
        "libnuma: Warning: cpu argument 0-63 is out of range",
        "numactl",
        r"(?:libnuma: Warning: )?\b(?:node|cpu) argument \S+ is out of range",
    ),
    raised(
        "Error",
        "ValueError: The hidden size (2048) is not a multiple of the number of attention heads "
        "(15).",
        H200,
        _REFUSED,
    ),
)
