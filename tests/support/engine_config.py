"""An engine's configuration as the host program reads it."""

from __future__ import annotations

from sglangctl.state.config import EngineConfig

ENGINE = EngineConfig(
    name="kimi",
    unit="sglang-kimi.service",
    user="sglang",
    port=8000,
    listen="127.0.0.1",
    model="/models/kimi",
    served_name="kimi",
)
