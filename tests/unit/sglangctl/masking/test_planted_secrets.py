"""What a bundle promises: none of these planted secrets gets out, and none of these harmless texts
is lost.

Each form holds ~~ where the secret stands. It is looked at as a file's text, within a JSON document
and as what a journal says that the engine logged.
"""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from sglangctl.masking.names import is_secret_name
from sglangctl.masking.scrub import scrub, scrub_event, scrub_file
from sglangctl.masking.text import mask_argv

PLANTED = "hunter2Zq7pX"
"""No shape of its own: only what stands around it gives it away."""
HEX = "0123456789abcdef" * 4
BASE64 = "MIIEowIBAAKCAQEAx7Jk2Lq9vT0bY4mQ8sW1eRZu5nHf3oGdCaPiVjXtKlMwSyNB"
LETTERS = "aB3dE6gH9jK2mN5pQ8sT1vW4xY7zA0cD"

NAMED = """
DB_PASS=~~
export MYSQL_PWD=~~
PGPASSWORD='~~'
REDIS_PASSWORD: "~~"
AWS_SECRET_ACCESS_KEY=~~
AWS_ACCESS_KEY_ID=~~
aws_session_token = ~~
MINIO_ACCESS_KEY=~~
OSS_ACCESS_KEY=~~
PRIVATE_KEY=~~
JWT_PRIVATE_KEY_B64=~~
WANDB_KEY=~~
WANDB_API_KEY=~~
STRIPE_KEY_LIVE=~~
ENCRYPTION_KEY="~~"
HF_TOKEN=~~
HUGGING_FACE_HUB_TOKEN=~~
SSH_PASSPHRASE=~~
passphrase: ~~
key-passphrase=~~
SMTP_PASS="~~"
SMTP_PASS_PROD=~~
db_pass = '~~'
user=bob pass=~~ port=1
Server=h;Uid=sa;Pwd=~~;Port=1
pwd=~~
DefaultEndpointsProtocol=https;AccountName=n;AccountKey=~~;EndpointSuffix=core
Endpoint=sb://h/;SharedAccessKey=~~
SharedAccessSignature=~~
{"accessKey": "~~", "region": "eu"}
{"secretKey":"~~"}
{"privateKey": "~~"}
{"clientSecret": "~~"}
{"authToken": "~~"}
{"refreshToken": "~~"}
{"sessionToken": "~~"}
{"auths": {"registry.example": {"auth": "~~"}}}
{"password": "~~"}
{'passwd': '~~'}
accessKey: ~~
apiKey: '~~'
APIKey=~~
SECRET=~~
CLIENT_SECRET=~~
DJANGO_SECRET_KEY='~~'
GOOGLE_APPLICATION_CREDENTIALS_JSON=~~
NPM_CONFIG__AUTH=~~
//registry.npmjs.example/:_authToken=~~
SLACK_WEBHOOK=~~
WEBHOOK_URL=~~
NTFY_AUTH=~~
--api-key ~~ --port 1
--ssl-keyfile-password ~~ --port 1
--db-pass=~~ --port 1
--access-key ~~
password is set: password=~~
"--auth-token", "~~"
sshpass -p ~~ ssh h
sshpass -p~~ ssh h
mysql -u root -p~~ db
redis-cli -h h -a ~~ ping
docker login -u bob -p ~~ registry.example
curl -u bob:~~ https://h
curl -sSubob:~~ https://h
openssl rsa -passin pass:~~ -in k
""".strip().splitlines()

HEADERS = """
Authorization: Bearer ~~
Authorization: Basic ~~
authorization: ~~
Proxy-Authorization: Basic ~~
Cookie: session=~~; theme=dark
Cookie: theme=dark; session=~~
Set-Cookie: sid=~~; HttpOnly
{"headers": {"cookie": "a=~~"}}
{"set-cookie": ["a=~~; Path=/"]}
X-Auth-Key: ~~
X-Auth-Token: ~~
X-Api-Key: ~~
X-Amz-Security-Token: ~~
Ocp-Apim-Subscription-Key: ~~
x-functions-key: ~~
x-acme-key: ~~
PRIVATE-TOKEN: ~~
X-Vault-Token: ~~
curl -H 'X-Auth-Key: ~~' https://h
curl --cookie 'a=~~' https://h
curl -b a=~~ https://h
Bearer ~~
""".strip().splitlines()

ADDRESSES = """
https://user:~~@h/x
https://~~@h/x
redis://:~~@h:6379/0
postgres://user:pa/~~@h/db
postgres://user:p@~~@h/db
postgresql+psycopg://user:~~@h:5432/db
mongodb+srv://user:~~@h/db
amqp://user:~~@h//
git+https://user:~~@h/x.git
http://h/v1?key=~~
http://h/v1?a=1&key=~~&b=2
http://h/blob?sv=1&sig=~~
http://h/v1?api_key=~~
http://h/v1?access_token=~~#x
http://h/s3?X-Amz-Signature=~~&X-Amz-Expires=1
http://h/s3?X-Amz-Credential=~~
http://h/gcs?X-Goog-Signature=~~
http://h/cf?Expires=1&Signature=~~
http://h/cb?code=~~
http://h/a?auth=~~
GET /v1/models?key=~~ HTTP/1.1
http://h/v1?a=1&amp;key=~~
https://hooks.slack.com/services/T000/B000/~~
https://discord.com/api/webhooks/1234/~~
https://discordapp.com/api/webhooks/1234/~~
https://acme.webhook.office.com/webhookb2/~~
https://outlook.office.com/webhook/~~
https://chat.googleapis.com/v1/spaces/A/messages?key=k&token=~~
https://api.telegram.org/bot123456:~~/sendMessage
https://hooks.zapier.com/hooks/catch/1/~~/
https://open.feishu.cn/open-apis/bot/v2/hook/~~
https://sctapi.ftqq.com/~~.send
http://h/login?next=https%3A%2F%2Fu%3A~~%40h2%2F
http://h/login?next=%2Fx%3Ftoken%3D~~
password%3D~~
api_key%3D%22~~%22
token%253D~~
HTTP_PROXY=http://u:~~@proxy:1
""".strip().splitlines()

FILES = [
    "machine h login bob password ~~",
    "machine h\n  login bob\n  password ~~\n",
    "machine h\n\tlogin bob\n\tpassword '~~'\n",
    "default login bob password ~~",
    "machine h login bob account a password ~~ machine i",
    "[Service]\nEnvironment=FOO=~~\nExecStart=/bin/x",
    '[Service]\nEnvironment="FOO=a b" "BAR=x ~~"\nExecStart=/bin/x',
    "[Service]\nEnvironment=FOO=a \\\n  BAR=~~\nExecStart=/bin/x",
    "[Service]\nEnvironment = FOO=~~\n",
    "  Environment=FOO=~~",
    "FragmentPath=/x\nEnvironment=FOO=1 BAR=~~\n",
    "[Service]\\nEnvironment=FOO=~~\\nExecStart=/bin/x",
    "[Service]\nSetCredential=name:~~\n",
    f"-----BEGIN RSA PRIVATE KEY-----\n{BASE64}\n~~\n-----END RSA PRIVATE KEY-----",
    f"-----BEGIN OPENSSH PRIVATE KEY-----\r\n{BASE64}\r\n~~\r\n-----END OPENSSH PRIVATE KEY-----\r\n",
    "x='-----BEGIN PRIVATE KEY-----\\n~~\\n-----END PRIVATE KEY-----\\n'",
    "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n~~\n-----END EC PRIVATE KEY-----",
    f"-----BEGIN PRIVATE KEY-----\n{BASE64}\n~~AAAAAAAAAAAAAAAA",
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n~~\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----",
    "root:$6$saltsalt$~~abcdefghijklmnop/.:19000:0:99999:7:::",
]

SHAPES = [
    f"hf_{LETTERS}",
    f"sk-{LETTERS}",
    f"sk-proj-{LETTERS}-{LETTERS}",
    f"sk-ant-api03-{LETTERS}",
    f"https://h/v1/sk-{LETTERS}/x",
    f"sk_live_{LETTERS}",
    f"rk_test_{LETTERS}",
    f"whsec_{LETTERS}",
    f"ghp_{LETTERS}",
    f"github_pat_{LETTERS}",
    f"glpat-{LETTERS}",
    f"nvapi-{LETTERS}",
    f"xoxb-{LETTERS}",
    f"xapp-1-{LETTERS}",
    "AKIA0123456789ABCDEF",
    "ASIA0123456789ABCDEF",
    f"AIza{LETTERS}abc",
    f"ya29.{LETTERS}",
    f"SG.{LETTERS[:22]}.{LETTERS}{LETTERS[:11]}",
    f"npm_{LETTERS}abcd",
    f"pypi-AgEIcHlwaS5vcmc{LETTERS}",
    f"dckr_pat_{LETTERS}",
    f"dop_v1_{HEX}",
    f"hvs.{LETTERS}",
    f"glsa_{LETTERS}_deadbeef",
    f"tskey-auth-{LETTERS}",
    f"gsk_{LETTERS}",
    f"r8_{LETTERS}",
    f"shpat_{HEX[:32]}",
    f"AGE-SECRET-KEY-1{LETTERS.upper()}{LETTERS.upper()}",
    f"eyJ{LETTERS}.eyJ{LETTERS}.{LETTERS}",
    f"Bearer {LETTERS}",
    BASE64,  # a line of a private key whose beginning was cut off
]

HARMLESS = """
SGLANG_INIT_NEW_TOKEN_RATIO=0.7
SGLANG_MIN_NEW_TOKEN_RATIO_FACTOR=0.14
SGLANG_NEW_TOKEN_RATIO_DECAY_STEPS=600
SGLANG_CLIP_MAX_NEW_TOKENS_ESTIMATION=4096
SGLANG_DEEPEP_NUM_MAX_DISPATCH_TOKENS_PER_RANK=256
SGLANG_PREFILL_DELAYER_TOKEN_USAGE_LOW_WATERMARK=0.3
--max-total-tokens 4096 --max-prefill-tokens 8192
max_total_num_tokens=2031616, token usage: 0.01, #queue-req: 0
"max-total-tokens": 4096
TOKENIZERS_PARALLELISM=false
TOKENIZER_MODE=auto
tokenizer_path='/models/kimi', tokenizer_worker_num=1
bos_token_id=1 eos_token='</s>' pad_token=None
image_token='<image>' mask_token='[MASK]' special_token_ids=[1, 2]
token_to_kv_pool=TokenToKVPool(size=4096)
/models/sk-learn-embedding-large-v2/model-00001-of-00002.safetensors
loading /data/sk-model-checkpoints-2026-long-name/config.json
PWD=/root
OLDPWD=/models/kimi
kernel key 3f9a0c11b2d4e5f6a7b8c9d0e1f2a3b4c5d6e7f80123456789abcdef01234567
{"key": "3f9a0c11b2d4", "venv": "/opt/sglang/venvs/3f9a0c11b2d4"}
{"kernel_key": "3f9a0c11b2d4"}
cache_key=3f9a0c11b2d4 sort_key=name
num_key_value_heads=8, key_dim=128
KeyError: 'model.layers.0.mlp.experts.w13'
missing key(s) in state_dict: model.embed_tokens.weight
HCCL_BUFFSIZE=200 PYTHONHASHSEED=0
CUDA_VISIBLE_DEVICES=0,1 NCCL_P2P_LEVEL=SYS
commit 0123456789abcdef0123456789abcdef01234567
sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
GPU-5c1e8b2a-0f3d-4a6b-9c7e-1d2f3a4b5c6d
http://h:80/a@b
http://127.0.0.1:30000/v1/models
ssh://git@h/x
INFO:     127.0.0.1:51234 - "POST /v1/chat/completions HTTP/1.1" 200 OK
GET /search?q=key&page=2 HTTP/1.1
http://h/v1/models?keyword=a&monkey=b&design=c
argument --api-key: expected one argument
/run/secret: Permission denied
/etc/ssh/ssh_host_key.pub: No such file
forward_pass=12 first_pass: 3 num_passes=4
compass=north bypass=1 passed=10 password_required
Passed 10 of 10 tests
author=someone authority=x authors: a, b
EnvironmentFile=/var/lib/sglangctl/kimi/current/engine.env
PassEnvironment=LANG
the password is asked for at the prompt
Enter passphrase for key
machine learning model loaded, login shell
progress 50%20 of a word, 100%, 5%d
/models/a%20b/c
http://h/v1/files/a%20b%2Fc
Loading safetensors checkpoint shards:  25% Completed | 1/4 [00:01<00:03,  1.00s/it]
sk-ecdsa-sha2-nistp256@openssh.com
ssh-ed25519 is a key type
key: value
-----BEGIN of the log-----
quantization=w8a8_fp8 hf_config=LlamaConfig hf_overrides={}
ghost_writer_is_a_long_name gsk_is_short
eyJ is how JSON begins in base64
""".strip().splitlines()

FORMS = [*NAMED, *HEADERS, *ADDRESSES, *FILES]


def views(text: str) -> list[str]:
    """What becomes of a text as each kind of a bundle's parts."""
    return [
        scrub(text),
        scrub_file("systemd.log", f"before\n{text}\nafter\n"),
        scrub_file("state.json", json.dumps({"sources": {"/u": text}, "list": [text, 1]})),
        scrub_event(json.dumps({"t": 1, "kind": "log", "data": f"{text}\n"})),
        scrub_file("journal/1.jsonl", json.dumps({"argv": ["sh", "-c", text]})),
    ]


def test_there_are_forms_enough() -> None:
    assert len(set(FORMS)) >= 60 and all("~~" in form for form in FORMS)


@pytest.mark.parametrize("form", FORMS)
def test_a_planted_secret_does_not_get_out(form: str) -> None:
    for seen in views(form.replace("~~", PLANTED)):
        assert PLANTED not in seen


@pytest.mark.parametrize("form", [form for form in FORMS if "\n" not in form])
def test_nor_percent_encoded(form: str) -> None:
    text = form.replace("~~", PLANTED)
    for seen in views(f"GET /a?b={quote(text, safe='')} HTTP/1.1"):
        assert PLANTED not in seen


@pytest.mark.parametrize(
    ("secret", "around"),
    [(BASE64, "~~")]  # only a line alone
    + [
        (secret, around)
        for secret in SHAPES
        for around in ("~~", "x ~~ y", "'~~'", 'x="~~"', "x: ~~, y", "http://h/?x=~~&y=1")
        if secret != BASE64
    ],
)
def test_a_secret_of_a_known_shape_does_not_get_out(secret: str, around: str) -> None:
    for seen in views(around.replace("~~", secret)):
        assert secret.removeprefix("Bearer ")[8:] not in seen


@pytest.mark.parametrize("text", HARMLESS)
def test_harmless_texts_survive(text: str) -> None:
    assert scrub(text) == text
    assert json.loads(scrub_file("x.json", json.dumps([text]))) == [text]


@pytest.mark.parametrize(
    "argv",
    [
        ["sshpass", "-p", PLANTED, "ssh", "h"],
        ["sshpass", f"-p{PLANTED}", "ssh", "h"],
        ["/usr/bin/mysql", f"-p{PLANTED}", "db"],
        ["mysqldump", f"--password={PLANTED}", "db"],
        ["redis-cli", "-a", PLANTED, "ping"],
        ["docker", "login", "-p", PLANTED],
        ["curl", "-b", f"a={PLANTED}", "http://h"],
        ["curl", "-H", f"Cookie: a={PLANTED}"],
        ["x", "--db-pass", PLANTED],
        ["x", f"http://h/?sig={PLANTED}"],
    ],
)
def test_command_lines_of_others(argv: list[str]) -> None:
    assert PLANTED not in " ".join(mask_argv(argv))
    assert mask_argv(argv)[0] == argv[0]


@pytest.mark.parametrize(
    "document",
    [
        {"db_pass": 12345678},
        {"password": 12345678},
        {"env": {"MYSQL_PWD": "x" * 8}},
        {"accessKey": ["a", "b"]},
        {"Cookie": "a=b"},
    ],
)
def test_values_of_json(document: dict[str, object]) -> None:
    text = scrub_file("x.json", json.dumps(document))
    assert "***" in text and "12345678" not in text and "xxxx" not in text


def test_what_is_a_number_of_tokens_is_no_secret() -> None:
    assert json.loads(scrub_event('{"token": 5, "password": null}')) == {
        "token": 5,
        "password": None,
    }


def test_the_names_of_recorded_starts_are_known() -> None:
    """No variable and no flag that a recorded start had is taken for a secret, but for the keys."""
    traces = Path(__file__).parents[3] / "traces"
    names: set[str] = set()
    for journal in traces.rglob("journal.jsonl"):
        launch = json.loads(journal.read_text().partition("\n")[0])
        names |= set(launch.get("env") or {})
        names |= {word.partition("=")[0] for word in launch.get("argv") or () if word[:2] == "--"}
    assert names
    assert {name for name in names if is_secret_name(name)} <= {"--api-key", "--admin-api-key"}
