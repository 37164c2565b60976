"""What the stand-in says: words in place of tokens."""

from __future__ import annotations

from typing import Any

from sglang._standin import options

FRANCE = "The capital of France is Paris. It lies on the river Seine in the north of the country."
OTHER = "Here is an answer in plain words, one after the other, with nothing strange in them."
BAD = {
    "nul": "\0",
    "replacement": "\ufffd",
    "repeat": " the",
    "empty": "",
}


def words(prompt: str, max_tokens: int, ignore_eos: bool = False) -> list[str]:
    """The answer to a prompt, as at most `max_tokens` words (each with its leading space)."""
    bad = options.text("BAD_TEXT")
    if bad:
        return [BAD[bad]] * max_tokens
    text = options.text("TEXT") or (FRANCE if "France" in prompt else OTHER)
    found = [word if number == 0 else f" {word}" for number, word in enumerate(text.split())]
    while ignore_eos and len(found) < max_tokens:
        found += [f" {word}" for word in text.split()]
    return found


def prompt_text(body: dict[str, Any]) -> str:
    """The text of a chat or completion request."""
    if "messages" not in body:
        prompt = body.get("prompt", body.get("text", ""))
        return " ".join(str(part) for part in prompt) if isinstance(prompt, list) else str(prompt)
    parts = []
    for message in body["messages"]:
        content = message.get("content") or ""
        if isinstance(content, list):
            content = " ".join(str(part.get("text", "")) for part in content)
        parts.append(content)
    return "\n".join(parts)


def tokens(text: str) -> int:
    """About how many tokens a prompt has."""
    return len(text.split()) + 8
