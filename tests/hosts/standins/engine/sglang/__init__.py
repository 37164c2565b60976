"""A stand-in for SGLang: its command line, log, processes and HTTP answers, without a model."""

from sglang.version import __version__ as __version__
