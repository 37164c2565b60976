"""Which names hold secrets: flags, variables, headers, keys of JSON, parameters of an address."""

from __future__ import annotations

import re

from sglangctl.util import lazy_re

MASK = "***"

_WORD = lazy_re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
"""`accessKey`, `ACCESS_KEY` and `access-key` are two words each."""
_TAIL = r"(?:_(?:[0-9]+|b|base|data|hex|json|live|new|old|pem|prod|string|test|url|value))*$"
"""What may follow a secret's name without changing what it is: PRIVATE_KEY_B64."""
_SECRET = lazy_re.compile(
    r"passw(?:or)?d|passphrase|passcode|secret|credential|cookie|authorization|api_?key|private_?key|"
    r"access_?key|account_?key|auth_?key|access_?signature|"
    rf"(?:^|_)(?:pass|pw|pwd|psk|auth|webhook){_TAIL}|"
    r"(?:^x_.*|(?:^|_)(?:sign|signing|(?:en|de)crypt(?:ion)?|master|licen[cs]e|admin|shared|session|"
    r"storage|ssh|ssl|tls|rsa|dsa|ecdsa|pgp|gpg|deploy|client|app|application|consumer|"
    rf"subscription|functions?|wandb|openai|anthropic|hf))_key{_TAIL}"
)
_NO_PASSWORD = lazy_re.compile(
    rf"(?:^|_)(?:one|two|single|multi|first|second|last|num|by|forward|backward)_pass{_TAIL}"
)
_VARIABLE = lazy_re.compile(r"[A-Z][A-Z0-9_]*")
_KEY = lazy_re.compile(rf"([a-z0-9]+)_key{_TAIL}")
"""A variable that ends so holds a key, whatever stands before it, but for:"""
_NO_KEY = lazy_re.compile(
    "cache|dict|foreign|graph|group|hash|host|index|kernel|kv|lookup|map|num|partition|primary|public|"
    "query|registry|routing|sort|store"
)
_NO_TOKEN = lazy_re.compile(
    r"tokens|tokeniz|token_(?:assert|attention|batch|block|bucket|budget|buckets|capacity|config|count|"
    r"decay|dispatch|dispatcher|distribution|embed|embedding|group|id|ids|idx|index|interval|"
    r"latency|len|length|level|limit|logprob|logprobs|map|mask|max|metric|metrics|min|mode|ms|num|oracle|"
    r"padding|parallel|per|pool|pos|position|prob|probs|rate|ratio|size|step|steps|stride|"
    r"threshold|throughput|time|to|type|usage|weight|weights|window|worker)(?:_|$)|"
    r"(?:^|_)(?:audio|bos|cls|draft|each|eos|first|image|inter|last|mask|max|min|next|num|pad|per|"
    r"sep|special|stop|think|unk|video)_token(?:_|$)"
)
"""Names with `token` that hold numbers, files or a tokenizer's words: all such flags of SGLang 0.5.9
to 0.5.23, and its variables."""
_NOTHING = lazy_re.compile(r"none|null|true|false", re.I)
_NUMBER = lazy_re.compile(r"[-+0-9.]+")
_PARAMETER = lazy_re.compile(r"(?:^|_)(?:key|sig|signature|code|hmac)$")


def is_secret_name(name: str) -> bool:
    """Whether a flag's or variable's name says that its value is a secret."""
    if name in ("PWD", "OLDPWD"):
        return False
    spaced = _words(name)
    if _SECRET.search(spaced):
        return not _NO_PASSWORD.search(spaced)
    if "token" in spaced:
        return not _NO_TOKEN.search(spaced)
    key = _KEY.search(spaced) if _VARIABLE.fullmatch(name) else None
    return key is not None and not _NO_KEY.fullmatch(key[1])


def is_secret_parameter(name: str) -> bool:
    """The same for a parameter of an address, where `key` and `sig` are enough."""
    return is_secret_name(name) or bool(_PARAMETER.search(_words(name)))


def is_no_secret(name: str, value: str) -> bool:
    """Whether a value shows that its name means something else: nothing, a switch, a number."""
    if _NOTHING.fullmatch(value):
        return True
    return bool(_NUMBER.fullmatch(value)) and (len(value) < 4 or "token" in name.lower())


def _words(name: str) -> str:
    """The words of a name in lower case, with _ between them."""
    return "_".join(_WORD.findall(name)).lower()
