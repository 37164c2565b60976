"""The paths that users walk, on the real engine: all of them, and quick when they are repeated."""

from __future__ import annotations

import pytest

from tests.container.real_engine import RealEngine
from tests.hosts.host import Host

pytestmark = [pytest.mark.real, pytest.mark.timeout(900)]

AGAIN = """
import json, time, urllib.request
request = urllib.request.Request("http://127.0.0.1:8000/v1/chat/completions", json.dumps({
    "model": "tiny", "max_tokens": 4, "stream": True,
    "messages": [{"role": "user", "content":
                  "Name the capital of France and say one sentence about it."}],
}).encode(), {"Content-Type": "application/json"})
began = time.monotonic()
with urllib.request.urlopen(request, timeout=60) as answer:
    for line in answer:
        if b'"content"' in line:
            break
print(time.monotonic() - began)
"""


def test_every_path_is_walked_and_quick_afterwards(host: Host, engine: RealEngine) -> None:
    engine.configure()
    engine.start()
    ready = engine.until("ready")
    assert any(one["phase"] == "warming" for one in engine.verdicts())
    (proof,) = [event for event in engine.events() if event["kind"] == "generate"]
    warm = proof["warm"]
    print(warm, {"ready": ready["t"], "served": ready["served_after_s"]})
    assert len(warm["paths"]) == 7
    for path in warm["paths"]:
        assert not {"fault", "skipped"} & set(path), path
        assert path["again_s"] < 10, path
    assert float(host.exec("python3", "-c", AGAIN).stdout) < 5.0


def test_an_embedding_model_proves_its_vectors(host: Host, engine: RealEngine) -> None:
    engine.configure(flags={"is-embedding": True})
    engine.start()
    engine.until("ready")
    (proof,) = [event for event in engine.events() if event["kind"] == "generate"]
    assert proof["model_kind"] == "embedding" and "2 vectors of " in proof["text"]
    assert len(proof["warm"]["paths"]) == 3
    report = host.exec("sglangctl", "verify", engine.name).stdout
    assert "2 vectors of " in report


def test_a_model_without_a_chat_template_completes(host: Host, engine: RealEngine) -> None:
    host.exec("cp", "-r", "/models/tiny-qwen3", "/models/base")
    host.exec("sh", "-c", "rm -f /models/base/chat_template*")
    script = (
        "import json; p = '/models/base/tokenizer_config.json'; d = json.load(open(p)); "
        "d.pop('chat_template', None); json.dump(d, open(p, 'w'))"
    )
    host.exec("python3", "-c", script)
    engine.model = "/models/base"
    engine.configure()
    engine.start()
    engine.until("ready")
    (proof,) = [event for event in engine.events() if event["kind"] == "generate"]
    assert proof["model_kind"] == "completion" and proof["tokens"] > 0
    assert not any("fault" in path for path in proof["warm"]["paths"])
