"""Every mistake: where it is, what was found, what is allowed, what was perhaps meant."""

from __future__ import annotations

import json
import textwrap
import time
from pathlib import Path

import pytest

from roles.inventory import InventoryError, load_inventory
from roles.inventory.render import environment
from tests.support.inventory_case import engine, engine_errors, load, only

ENGINE_MISTAKES = [
    # body of the engine; the mistake's key; what else the error has: value, what is allowed or meant
    ("prot: 8000", "prot", ('"port"',)),
    ("api-key: {env: K}", "api-key", ('"api_key"',)),
    ("Flags: {}", "Flags", ('"flags"',)),
    ("port: 0", "port", ("0", "1", "65535")),
    ("port: 65536", "port", ("65536", "1", "65535")),
    ("port: 8000.0", "port", ("8000.0", "1", "65535")),
    ("port: '8000'", "port", ('"8000"', "65535")),
    ("port:", "port", ("65535",)),
    ("port: true", "port", ("true", "65535")),
    ("tensor_parallel: 0", "tensor_parallel", ("0", "1")),
    ("gpus: [0, 0]", "gpus", ("[0, 0]", "different")),
    ("gpus: some", "gpus", ('"some"', "all")),
    ("gpus: []", "gpus", ("[]", "all")),
    ("gpus: [0]\ntensor_parallel: 2", "gpus", ("2",)),
    ("listen: 0.0.0", "listen", ('"0.0.0"', "IPv4", "IPv6")),
    ("listen: -x", "listen", ('"-x"', "IPv4", "IPv6")),
    ("user: root", "user", ('"root"', "root")),
    ("user: 'a b'", "user", ('"a b"', "user")),
    ("user: -x", "user", ('"-x"', "user")),
    ('user: "sglang\\n"', "user", ('"sglang\\n"', "user")),
    ("hardening: stict", "hardening", ('"stict"', '"strict"')),
    ("version: latest", "version", ('"latest"', "SGLang")),
    ("replaces: [a/b.service]", "replaces[0]", ('"a/b.service"', "slash")),
    ("replaces: [../x.service]", "replaces[0]", ('"../x.service"', "slash")),
    ("replaces: [vllm]", "replaces[0]", ('"vllm"', ".service")),
    ('replaces: ["a.service\\n"]', "replaces[0]", ('"a.service\\n"', ".service")),
    ("replaces: [-a.service]", "replaces[0]", ('"-a.service"', ".service")),
    ("replaces: [sglang-e.service]", "replaces[0]", ("engine",)),
    ("replaces: [sglangctl-switch.service]", "replaces[0]", ("engine",)),
    ("replaces: [sglang-watch@e.service]", "replaces[0]", ("engine",)),
    ("replaces: [ssh.service]", "replaces[0]", ('"ssh.service"', "engine")),
    ("replaces: [sshd.service]", "replaces[0]", ("engine",)),
    ("replaces: [systemd-logind.service]", "replaces[0]", ("engine",)),
    ("replaces: [dbus-broker.service]", "replaces[0]", ("engine",)),
    ("replaces: [docker.service]", "replaces[0]", ("containers",)),
    ("replaces: [vllm@.service]", "replaces[0]", ("template",)),
    ("drafter: {path: d}", "drafter.path", ('"d"', "absolute")),
    ("drafter: {}", "drafter.path", ("EAGLE3",)),
    ("drafter: {path: /d, steps: 3}", "drafter", ("steps",)),
    (
        "drafter: {path: /d, steps: 3, topk: 1, draft_tokens: 3}",
        "drafter.draft_tokens",
        ("3", "4", "topk", "steps"),
    ),
    ("drafter: {path: /d, algorithm: eagle3}", "drafter.algorithm", ('"EAGLE3"',)),
    ("flags: {tp_size: 8}", "flags.tp_size", ('"tp_size"', '"tp-size"')),
    ("flags: {--tp: 8}", "flags.--tp", ('"--tp"', "--")),
    ("flags: {mem_fraction_static: 1}", "flags.mem_fraction_static", ('"mem-fraction-static"',)),
    ("flags: {mem-fraction-statc: 1}", "flags.mem-fraction-statc", ('"mem-fraction-static"',)),
    ("flags: {wobble: 1}", "flags.wobble", ("0.5.23",)),
    ("flags: {port: 1}", "flags.port", ("--port", "key port")),
    ("flags: {por: 1}", "flags.por", ("--por", "--port", "key port")),
    ("flags: {tp: 2}", "flags.tp", ("tensor_parallel",)),
    ("flags: {api-key: x}", "flags.api-key", ("api_key",)),
    ("flags: {model-path: /x}", "flags.model-path", ("model.path",)),
    ("flags: {config: /x}", "flags.config", ("flags",)),
    ("flags: {chat-template: --}", "flags.chat-template", ('"--"',)),
    ("flags: {log-requests-target: [a, --b]}", "flags.log-requests-target[1]", ('"--b"', "-")),
    ('flags: {chat-template: "a\\0b"}', "flags.chat-template", ("NUL",)),
    ('flags: {chat-template: "\\ud800"}', "flags.chat-template", ('"\\ud800"', "surrogate")),
    (
        'flags: {chat-template: {a: ["\\uffff"]}}',
        "flags.chat-template.a[0]",
        ('"\\uffff"', "noncharacter"),
    ),
    ('environment: {X: "\\U0001ffff"}', "environment.X", ("noncharacter",)),
    ("flags: {chat-template: [[1]]}", "flags.chat-template[0]", ("[1]", "number", "string")),
    ("environment: {A B: 1}", 'environment."A B"', ('"A B"', "variable")),
    ('environment: {A: "x\\ny"}', "environment.A", ('"x\\ny"', "line break")),
    ("environment: {A: true}", "environment.A", ("true", "quote")),
    ("environment: {INVOCATION_ID: x}", "environment.INVOCATION_ID", ("systemd",)),
    ("environment: {MAINPID: 1}", "environment.MAINPID", ("systemd",)),
    ("environment: {SGLANGCTL_ROOT: /x}", "environment.SGLANGCTL_ROOT", ("sglangctl",)),
    (
        "environment: {CUDA_DEVICE_ORDER: FASTEST_FIRST}",
        "environment.CUDA_DEVICE_ORDER",
        ("PCI_BUS_ID",),
    ),
    ("environment: {MAX_JOBS: many}", "environment.MAX_JOBS", ('"many"', "0")),
    ("environment: {MAX_JOBS: 0}", "environment.MAX_JOBS", ("0",)),
    ("environment: {MAX_JOBS: 8.0}", "environment.MAX_JOBS", ("8.0", "whole")),
    ("environment: {MAX_JOBS: 1.5}", "environment.MAX_JOBS", ("1.5", "0")),
    ("environment: {CUDA_HOME: cuda}", "environment.CUDA_HOME", ('"cuda"', "absolute")),
    ("environment: {TRITON_CACHE_DIR: ''}", "environment.TRITON_CACHE_DIR", ('""', "absolute")),
    ("environment: {HF_HOME: /a/../b}", "environment.HF_HOME", ('"/a/../b"', "..")),
    ("environment: {LD_PRELOAD: /tmp/x.so}", "environment.LD_PRELOAD", ('"/tmp/x.so"', "root")),
    (
        "environment: {LD_PRELOAD: 'a.so:/usr/lib/b.so /var/cache/sglang/e/c.so'}",
        "environment.LD_PRELOAD",
        ('"/var/cache/sglang/e/c.so"', "root"),
    ),
    ("environment: {LD_PRELOAD: lib/x.so}", "environment.LD_PRELOAD", ('"lib/x.so"', "root")),
    ("environment: {LD_PRELOAD: //tmp/./x}", "environment.LD_PRELOAD", ('"//tmp/./x"', "root")),
    ("environment: {LD_PRELOAD: /var/lock/x.so}", "environment.LD_PRELOAD", ("root",)),
    ("environment: {LD_PRELOAD: /lib/../tmp/x}", "environment.LD_PRELOAD", ("root",)),
    ("environment: {LD_PRELOAD: /proc/self/cwd/x}", "environment.LD_PRELOAD", ("root",)),
    ("environment: {LD_PRELOAD: '/x/$ORIGIN/y'}", "environment.LD_PRELOAD", ("root",)),
    ("environment: {LD_AUDIT: /dev/shm/x}", "environment.LD_AUDIT", ("root",)),
    ("environment: {LD_LIBRARY_PATH: '/usr/lib:'}", "environment.LD_LIBRARY_PATH", ('""', "root")),
    ("environment: {LD_LIBRARY_PATH: 'lib;/x'}", "environment.LD_LIBRARY_PATH", ('"lib"', "root")),
    (
        "environment: {LD_LIBRARY_PATH: /var/tmp}",
        "environment.LD_LIBRARY_PATH",
        ('"/var/tmp"', "root"),
    ),
    (
        "environment: {LD_LIBRARY_PATH: '/usr/lib:/opt/sglang/venvs/ab/lib/torch'}",
        "environment.LD_LIBRARY_PATH",
        ('"/opt/sglang/venvs/ab/lib/torch"', "root"),
    ),
    ("environment: {MODPROBE_OPTIONS: -C /srv/x}", "environment.MODPROBE_OPTIONS", ("root",)),
    ("environment: {LD_DEBUG_OUTPUT: /tmp/x}", "environment.LD_DEBUG_OUTPUT", ('"/tmp/x"', "root")),
    ("environment: {HOME: /x}", "environment.HOME", ()),
    ("environment: {CUDA_VISIBLE_DEVICES: 0}", "environment.CUDA_VISIBLE_DEVICES", ("gpus",)),
    ("environment: {NCCL_PROTO: LL}", "environment.NCCL_PROTO", ("nccl.overrides",)),
    ("environment: {NCCL_PROTOO: LL}", "environment.NCCL_PROTOO", ('"NCCL_PROTO"',)),
    ("nccl: {profile: latnecy}", "nccl.profile", ('"latency"',)),
    ("nccl: {overrides: {NCCL_BUFSIZE: 1}}", "nccl.overrides.NCCL_BUFSIZE", ("NCCL_BUFFSIZE",)),
    ("nccl: {overrides: {P2P_LEVEL: sys}}", "nccl.overrides.P2P_LEVEL", ('"SYS"',)),
    ("nccl: {overrides: {P2P_LEVEL: 4}}", "nccl.overrides.P2P_LEVEL", ("4", "LOC", "NVL")),
    ("nccl: {overrides: {P2P_LEVEL: NVX}}", "nccl.overrides.P2P_LEVEL", ("LOC", "NVL")),
    ("nccl: {overrides: {P2P_DISABLE: yes}}", "nccl.overrides.P2P_DISABLE", ("0", "1")),
    ("nccl: {overrides: {PROTO: LL64}}", "nccl.overrides.PROTO", ("LL128", "Simple")),
    ("nccl: {overrides: {ALGO: Rng}}", "nccl.overrides.ALGO", ('"Ring"',)),
    ("nccl: {overrides: {NTHREADS: 500}}", "nccl.overrides.NTHREADS", ("64", "128")),
    ("nccl: {overrides: {BUFFSIZE: 16M}}", "nccl.overrides.BUFFSIZE", ('"16M"',)),
    ("nccl: {overrides: {BUFFSIZE: 1, NCCL_BUFFSIZE: 2}}", "nccl.overrides.BUFFSIZE", ("once",)),
    ('nccl: {overrides: {SOCKET_IFNAME: "a\\nb"}}', "nccl.overrides.SOCKET_IFNAME", ("control",)),
    ("install: {packages: [torch]}", "install.packages[0]", ('"torch"', "pin")),
    ("install: {packages: ['torch>=2']}", "install.packages[0]", ("pin",)),
    ("install: {packages: ['torch==2.*']}", "install.packages[0]", ("pin",)),
    ("install: {packages: ['torch===2.9']}", "install.packages[0]", ("pin",)),
    ("install: {packages: ['a @ git+https://h/a.git@main']}", "install.packages[0]", ("40",)),
    ("install: {packages: ['a @ git+https://h/a.git']}", "install.packages[0]", ("40",)),
    ("install: {packages: ['a @ hg+https://h/a']}", "install.packages[0]", ("pin",)),
    ("install: {packages: ['sglang == 0.5.9']}", "install.packages[0]", ("sglang==0.5.23",)),
    ("install: {packages: [--pre]}", "install.packages[0]", ("pin",)),
    ("install: {packages: [sglang==0.5.9]}", "install.packages[0]", ("sglang==0.5.23",)),
    ("install: {packages: [a==1, A==2]}", "install.packages[1]", ("pin",)),
    ("install: {packages: [sgl-kernel==0.4.1]}", "install.packages[0]", ("sglang-kernel",)),
    ("install: {python: -m}", "install.python", ('"-m"', "command")),
    ("install: {python: python3;id}", "install.python", ("command",)),
    (
        "install: {pip_arguments: ['--index-url=https://u:p@h/']}",
        "install.pip_arguments[0]",
        ("password",),
    ),
    ("readiness: {reachable_at: gpu1:8000}", "readiness.reachable_at", ("http://",)),
    ("readiness: {reachable_at: 'http://u:p@h'}", "readiness.reachable_at", ("credentials",)),
    (
        "readiness: {reachable_at: 'https://h/x?api_key=s'}",
        "readiness.reachable_at",
        ("parameters",),
    ),
    (
        "flags: {model-loader-extra-config: {a: [{aws_secret_access_key_secret: planted}]}}",
        "flags.model-loader-extra-config",
        ('"aws_secret_access_key_secret"', "secret"),
    ),
    (
        """flags: {json-model-override-args: '{"a": [{"api_key": "planted"}]}'}""",
        "flags.json-model-override-args",
        ('"api_key"', "secret"),
    ),
    ("flags: {sidecar-args: [--api-key, planted]}", "flags.sidecar-args", ('"api-key"', "secret")),
    ("flags: {sidecar-args: [--hf-token=planted]}", "flags.sidecar-args", ('"hf-token"', "secret")),
    ("flags: {gated-launch-port: 9000}", "flags.gated-launch-port", ("cutover",)),
    ("preflight: {ignore: [weights-mising]}", "preflight.ignore[0]", ('"weights-missing"?',)),
    ("preflight: {ignore: all}", "preflight.ignore", ("list",)),
    ("readiness: {degraded: ignore}", "readiness.degraded", ("commit", "fail")),
    ("readiness: {min_accept_length: 0.5}", "readiness.min_accept_length", ("1", "512")),
    ("readiness: {limits: {start: 9}}", "readiness.limits.start", ('"start_s"',)),
    ("readiness: {limits: {start_s: 0}}", "readiness.limits.start_s", ("0", "86400")),
    ("readiness: {limits: {start_s: 1e300}}", "readiness.limits.start_s", ("86400",)),
    ("readiness: {limits: {sample_s: 0.001}}", "readiness.limits.sample_s", ("0.1", "60")),
    ("flags: {help: true}", "flags.help", ("--help",)),
    ("flags: {hel: true}", "flags.hel", ("--hel",)),
    ("flags: {h: true}", "flags.h", ("--h", "--host", "listen")),
    ("flags: {version: true}", "flags.version", ()),
    ("environment: {PATH: /x}", "environment.PATH", ("CUDA_HOME",)),
]


@pytest.mark.parametrize(("body", "key", "tokens"), ENGINE_MISTAKES)
def test_a_mistake_in_an_engine(body: str, key: str, tokens: tuple[str, ...]) -> None:
    (error,) = engine_errors(body)
    assert error.startswith(f"{key}: ")
    assert [token for token in tokens if token not in error.removeprefix(key)] == []
    assert "\n" not in error and "planted" not in error and "u:p@" not in error


@pytest.mark.parametrize(
    ("model", "found"),
    [
        ("{path: models/x}", '"models/x"'),
        ('{path: "/models/a\\nExecStartPre=/bin/id"}', '"/models/a\\nExecStartPre=/bin/id"'),
        ('{path: "/models/a\\n"}', '"/models/a\\n"'),
        ('{path: "/models/\\e[31m"}', '"/models/\\u001b[31m"'),
        ("{path: /models/../etc}", '"/models/../etc"'),
        ("{path: //}", '"//"'),
        ("{path: 5}", "5"),
        ("{path: }", "nothing"),
        ("{}", "nothing"),
    ],
)
def test_a_model_path_that_cannot_be_one(model: str, found: str) -> None:
    errors = engine_errors("", model)
    assert errors
    assert all(error.startswith("model.path: ") and found in error for error in errors)


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("/var/lib/sglangctl", "/var/lib/sglangctl"),
        ("/var/lib/sglangctl/m", "/var/lib/sglangctl"),
        ("/var/cache/sglang/e/m", "/var/cache/sglang"),
        ("/var/cache/sglangctl/m", "/var/cache/sglangctl"),
        ("/var/log/sglang/m", "/var/log/sglang"),
        ("/opt/sglang/m", "/opt/sglang"),
        ("/etc/sglangctl/m", "/etc/sglangctl"),
        ("//usr/local/./lib//sglangctl/m/", "/usr/local/lib/sglangctl"),
    ],
)
def test_weights_do_not_lie_where_remove_would_delete_them(path: str, folder: str) -> None:
    for key, errors in (
        ("model.path", engine_errors("", f"{{path: {path}}}")),
        ("drafter.path", engine_errors(f"drafter: {{path: {path}}}")),
    ):
        (error,) = errors
        assert error.startswith(f"{key}: ") and f" {folder}:" in error and "remove.py" in error


@pytest.mark.parametrize("path", ["/var/cache/sglang-models/m", "/opt/sglangs", "/var/lib/m"])
def test_folders_beside_ours_are_free(path: str) -> None:
    assert engine_errors(f"drafter: {{path: {path}}}", f"{{path: {path}}}") == []


def test_what_the_inventorys_owner_decides() -> None:
    """It changes the engine alone, and shows in the plan's diff of engine.env."""
    spec = engine(
        """
        environment:
          LD_PRELOAD: "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4:libiomp5.so"
          LD_LIBRARY_PATH: /usr/local/cuda/lib64:/srv/lib
          CUDA_DEVICE_ORDER: PCI_BUS_ID
          MAX_JOBS: 8
          CUDA_HOME: /usr/local/cuda-13.0
          TRITON_CACHE_DIR: /scratch/triton
          PYTHONPATH: /srv/plugins
          HF_HUB_OFFLINE: 0
        """
    )
    rendered = environment(spec, "/v")
    assert {key: rendered[key] for key in spec.environment} == dict(spec.environment)
    assert rendered["MAX_JOBS"] == "8"


def test_a_variable_that_is_taken_away_is_not_checked() -> None:
    assert engine("environment: {LD_PRELOAD: }").environment == {}


def test_all_mistakes_at_once_in_the_order_of_the_file() -> None:
    errors = only(
        load(
            """
            hosts:
              h:
                sude: true
                engines:
                  e:
                    model: {path: x}
                    port: 70000
                    nccl: {overrides: {NCCL_P2P_LEVEL: sys}}
                    falgs: {}
                  f: {}
            """
        )
    ).errors
    assert [line.split(": found")[0] for line in errors] == [
        "hosts.yml:4: hosts.h.sude",
        "hosts.yml:7: hosts.h.engines.e.model.path",
        "hosts.yml:8: hosts.h.engines.e.port",
        "hosts.yml:9: hosts.h.engines.e.nccl.overrides.NCCL_P2P_LEVEL",
        "hosts.yml:10: hosts.h.engines.e.falgs",
        "hosts.yml:11: hosts.h.engines.f.gpus",
        "hosts.yml:11: hosts.h.engines.f.model.path",
    ]


def test_rules_between_keys_are_told_once_the_keys_are_right() -> None:
    errors = engine_errors("nccl: {overrides: {P2P_LEVEL: sys}}\nlisten: here\ndrafter: {}")
    assert [error.split(":")[0] for error in errors] == [
        "nccl.overrides.P2P_LEVEL",
        "listen",
        "drafter.path",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("hosts:\n  h: {}\n  h: {}\n", "hosts.yml:3: hosts.h: "),
        ("a: 1\na: 2\n", "hosts.yml:2: a: "),
        ("hosts: {h: [1\n", "hosts.yml:2: "),
        ("hosts:\n\th: 1\n", "hosts.yml:2: "),
        ("hosts: &a [*a]\n", "large"),
        ("hosts: !!python/object:os.system {}\nx: !!binary aGk=\n", "a tag"),
        ("hosts: {h: {x: .inf}}\n", "finite"),
        ("? [a]\n: 1\n", "key"),
        ("hosts:\n  \x07\n", "U+0007"),
        pytest.param("hosts: " + "[" * 5000, "deep", marks=pytest.mark.slow),
        ("hosts: {h: 1}\n---\nhosts: {}\n", "YAML"),
        ("hosts: *nothing\n", "hosts.yml:1: "),
        ('hosts:\n  h: !!bool "x"\n', '"bool"'),
        ('hosts:\n  h: !!int ""\n', '"int"'),
        ('hosts:\n  h: !!float ""\n', '"float"'),
        ("hosts:\n  h: !!timestamp x\n", "hosts.yml:2: hosts.h: "),
        ("hosts:\n  h: !!float nine\n", "hosts.yml:2: hosts.h: "),
        (f"hosts:\n  h: {'9' * 5000}\n", "hosts.yml:2: hosts.h: "),
    ],
)
def test_what_is_not_yaml_names_its_line(text: str, message: str) -> None:
    with pytest.raises(InventoryError) as caught:
        load(text)
    assert message in str(caught.value)


def test_a_yaml_error_does_not_quote_the_file() -> None:
    with pytest.raises(InventoryError) as caught:
        load("hosts:\n  h:\n    key: hunter2hunter2: [\n")
    assert "hunter2" not in str(caught.value)


def test_a_large_file_is_refused_before_it_is_parsed(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("hosts: {h: {engines: {e: {model: {path: /m}}}}}\n#" + "é" * 600_000)
    before = time.process_time()
    with pytest.raises(InventoryError, match="1024 KiB"):
        load_inventory(path)
    assert time.process_time() - before < 1


def test_many_values_are_refused_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.inventory.document.NODES", 500)
    # Counted while the file is read: what comes after is not even looked at.
    text = "hosts:\n" + "".join(f"  h{number}: 1\n" for number in range(600))
    with pytest.raises(InventoryError, match=r"hosts\.yml:25\d: .*500"):
        load(text + "  ]")


def test_an_alias_bomb_is_refused() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InventoryError, match="large"):
        load("\n".join(["a0: &a0 [x]", *levels, "hosts: {h: {engines: {e: {}}}}"]))


def test_words_stay_words() -> None:
    spec = engine(
        "environment: {A: 'off', B: yes, C: 012, D: 12:30, E: 1e3}\nflags: {chat-template: no}"
    )
    assert spec.environment == {"A": "off", "B": "yes", "C": "012", "D": "12:30", "E": "1e3"}
    assert spec.flags == {"chat-template": "no"}


@pytest.mark.parametrize(
    ("host", "key", "token"),
    [
        ("h: {engines: {}}", "hosts.h.engines", "mapping"),
        ("h: {engines: [e]}", "hosts.h.engines", '["e"]'),
        ("h: {}", "hosts.h.engines", "required"),
        ("h:", "hosts.h", "mapping"),
        ("h: {engines: {E: {model: {path: /m}}}}", "hosts.h.engines.E", '"E"'),
        ("h: {engines: {a/b: {model: {path: /m}}}}", 'hosts.h.engines."a/b"', '"a-b"'),
        ("h: {engines: {-x: {model: {path: /m}}}}", "hosts.h.engines.-x", "name"),
        ("h: {engines: {e: 5}}", "hosts.h.engines.e", "5"),
        ("h: {sudo: 1, engines: {e: {model: {path: /m}}}}", "hosts.h.sudo", "1"),
        ("h: {ssh: {port: 0}, engines: {e: {model: {path: /m}}}}", "hosts.h.ssh.port", "65535"),
        ("h: {ssh: {usr: x}, engines: {e: {model: {path: /m}}}}", "hosts.h.ssh.usr", '"user"'),
        ("h: {protected: [a/b], engines: {e: {model: {path: /m}}}}", "hosts.h.protected[0]", "a/b"),
        ("'@dokcer/x': {engines: {e: {model: {path: /m}}}}", 'hosts."@dokcer/x"', "@docker"),
        ("'a b': {engines: {e: {model: {path: /m}}}}", 'hosts."a b"', '"a b"'),
        ("'-oX=y': {engines: {e: {model: {path: /m}}}}", 'hosts."-oX=y"', "name"),
        ("'gpu*': {engines: {}}", 'hosts."gpu*"', "name"),
        ("'gpu1,gpu2': {engines: {}}", 'hosts."gpu1,gpu2"', "name"),
        ("'gpu1;id': {engines: {}}", 'hosts."gpu1;id"', "name"),
        ("'@docker/x;id': {engines: {}}", 'hosts."@docker/x;id"', "name"),
        ("'@docker/--privileged': {engines: {}}", 'hosts."@docker/--privileged"', "name"),
        ("'@dockerssh/h:-x': {engines: {}}", 'hosts."@dockerssh/h:-x"', "name"),
        ("'@ssh/-oProxyCommand=x': {engines: {}}", 'hosts."@ssh/-oProxyCommand=x"', "name"),
        ("'@local/x': {engines: {e: {model: {path: /m}}}}", 'hosts."@local/x"', "name"),
    ],
)
def test_a_mistake_in_a_host(host: str, key: str, token: str) -> None:
    errors = only(load(f"hosts:\n  {host}\n")).errors
    assert errors
    error = errors[0].split(": ", 1)[1]
    assert error.startswith(f"{key}: ") and token in error.removeprefix(key)


def test_engines_of_one_host_do_not_share_a_port_or_gpus() -> None:
    errors = only(
        load(
            """
            hosts:
              h:
                engines:
                  a: {model: {path: /m}, gpus: [0, 1]}
                  b: {model: {path: /m}, gpus: [1, 2]}
            """
        )
    ).errors
    gpus, port = (line.split(": ", 1)[1] for line in errors)
    assert gpus.startswith("hosts.h.engines.b.gpus: ") and "GPU 1" in gpus and "engine a" in gpus
    assert port.startswith("hosts.h.engines.b.port: ") and "30000" in port and "engine a" in port


def shared(a: str, b: str) -> list[str]:
    """What is wrong with two engines of one host, with these further keys."""
    text = (
        "hosts: {h: {engines: {a: {model: {path: /m}, port: 1, %s}, b: {model: {path: /m}, %s}}}}"
    )
    return [line.split("engines.", 1)[1] for line in only(load(text % (a, b))).errors]


def test_two_engines_that_take_all_gpus_are_told_before_the_switch() -> None:
    for a, b, found in (
        ("gpus: all", "gpus: all", "all"),
        ("gpus: all", "gpus: [1]", "GPU 1"),
        ("gpus: [0, 1]", "gpus: all", "GPU 0, 1"),
        ("gpus: all, flags: {device: cuda}", "hardening: strict", "all"),
    ):
        (error,) = shared(a, b)
        assert error.startswith("b.gpus: ") and found in error and "engine a" in error
        assert "device: cpu" in error


def test_an_engine_on_the_processor_shares_gpus_with_anybody() -> None:
    assert shared("gpus: all", "gpus: all, flags: {device: cpu}") == []
    assert shared("gpus: [0], flags: {device: cpu}", "gpus: [0]") == []
    assert shared("gpus: [0]", "gpus: [1]") == []


def test_an_engine_does_not_replace_its_sibling() -> None:
    for unit in ("sglang-a.service", "sglang-a_a.service", "sglang-a_b.service"):
        (error,) = shared("gpus: [0]", f"gpus: [1], replaces: [{unit}]")
        assert error.startswith("b.replaces[0]: ") and f'"{unit}", engine a' in error
    assert shared("gpus: [0]", "gpus: [1], replaces: [sglang-old.service, vllm@x.service]") == []


def test_pins_of_commits_and_with_spaces() -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    spec = engine(
        f"""
        install:
          packages:
            - a == 1.0
            - b[x] ==2.0+cu130
            - c @ git+https://h/r.git@{commit}
            - d @ git+ssh://git@h/r.git@{commit}#subdirectory=python
            - e @ https://h/e-1.0-py3-none-any.whl
            - f==1!2.0.post1
        """
    )
    assert spec.install.packages == (
        "sglang==0.5.23",
        "a==1.0",
        "b[x]==2.0+cu130",
        f"c @ git+https://h/r.git@{commit}",
        f"d @ git+ssh://git@h/r.git@{commit}#subdirectory=python",
        "e @ https://h/e-1.0-py3-none-any.whl",
        "f==1!2.0.post1",
    )


def test_a_mistake_in_a_base_names_the_base_and_hits_its_hosts_only() -> None:
    inventory = load(
        textwrap.dedent(
            """
            engines:
              good: {model: {path: /m}}
              bad: {model: {path: /m}, prot: 1}
              idle: {port: 0}
            hosts:
              a: {engines: {good: }}
              b: {engines: {bad: {}}}
              c: {engines: {bad: {port: 0}}}
            """
        )
    )
    a, b, c = inventory.hosts
    assert a.errors == ()
    assert [line.split(": found")[0] for line in b.errors] == ["hosts.yml:4: engines.bad.prot"]
    assert [line.split(": found")[0] for line in c.errors] == [
        "hosts.yml:4: engines.bad.prot",
        "hosts.yml:9: hosts.c.engines.bad.port",
    ]
    assert [line.split(": found")[0] for line in inventory.errors] == [
        "hosts.yml:5: engines.idle.port"
    ]


def test_a_misspelt_base_name_is_suggested() -> None:
    errors = only(
        load("engines: {kimi: {model: {path: /m}}}\nhosts: {h: {engines: {kimmi: {}}}}\n")
    ).errors
    assert '"kimi"' in errors[0]


def test_an_unknown_key_at_the_top_concerns_every_host() -> None:
    inventory = load("engine: {}\nhosts: {a: {engines: {e: {model: {path: /m}}}}}\n")
    (error,) = only(inventory).errors
    assert "engine: " in error and "hosts" in error and '"engines"' in error


def test_json_is_yaml_also_with_surrogate_pairs() -> None:
    spec = engine('flags: {chat-template: "\\ud83d\\ude00"}')
    assert spec.flags == {"chat-template": "\U0001f600"}


HOSTILE = "\x1b]0;x\x07\r\n$(id)"


@pytest.mark.parametrize(
    "body",
    [
        f"user: {json.dumps(HOSTILE)}",
        f"{json.dumps(HOSTILE)}: 1",
        f"flags: {{{json.dumps(HOSTILE)}: 1}}",
        f"replaces: [{json.dumps(HOSTILE)}]",
        f"environment: {{X: {json.dumps(HOSTILE)}}}",
        f"nccl: {{overrides: {{{json.dumps(HOSTILE)}: 1}}}}",
        f"api_key: {{file: {json.dumps('/' + HOSTILE)}}}",
    ],
)
def test_errors_are_harmless_on_a_terminal(body: str) -> None:
    errors = engine_errors(body)
    assert errors
    for error in errors:
        assert error.isprintable()


@pytest.mark.parametrize("name", ["a\x1b[31m", "a\nb", "a b", "x/../y", "$(id)", "a`id`", "-x"])
def test_host_names_are_harmless_too(name: str) -> None:
    entry = only(
        load(f"hosts: {{{json.dumps(name)}: {{engines: {{e: {{model: {{path: /m}}}}}}}}}}")
    )
    assert entry.spec is None
    assert all(error.isprintable() for error in entry.errors)


@pytest.mark.parametrize("number", ["0x" + "f" * 5000, "9" * 30, "-" + "9" * 4000])
@pytest.mark.parametrize("key", ["port", "gpus", "tensor_parallel"])
def test_a_number_of_any_length_is_one_mistake(number: str, key: str) -> None:
    with pytest.raises(InventoryError, match=r"64 bits|no int"):
        load(f"hosts:\n  h:\n    engines:\n      e: {{model: {{path: /m}}, {key}: {number}}}\n")
