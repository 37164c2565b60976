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
    # body of the engine, beginning of the error, what else is in it
    ("prot: 8000", "prot: found an unknown key", 'did you mean "port"?'),
    ("api-key: {env: K}", "api-key: found an unknown key", 'did you mean "api_key"?'),
    ("Flags: {}", "Flags: found an unknown key", 'did you mean "flags"?'),
    ("port: 0", "port: found 0", "a whole number from 1 to 65535"),
    ("port: 65536", "port: found 65536", "a whole number from 1 to 65535"),
    ("port: 8000.0", "port: found 8000.0", "a whole number from 1 to 65535"),
    ("port: '8000'", 'port: found the text "8000"', "a whole number"),
    ("port:", "port: found nothing", "a whole number"),
    ("port: true", "port: found true", "a whole number"),
    ("tensor_parallel: 0", "tensor_parallel: found 0", "from 1 to"),
    ("gpus: [0, 0]", "gpus: found [0, 0]", "a list of different GPU indices"),
    ("gpus: some", 'gpus: found "some"', "all, or a list"),
    ("gpus: []", "gpus: found []", "all, or a list"),
    ("gpus: [0]\ntensor_parallel: 2", "gpus: found 1 GPUs", "at least 2"),
    ("listen: 0.0.0", 'listen: found "0.0.0"', "an IPv4 or IPv6 address"),
    ("listen: -x", 'listen: found "-x"', "an IPv4 or IPv6 address"),
    ("user: root", 'user: found "root"', "not root"),
    ("user: 'a b'", 'user: found "a b"', "a system user's name"),
    ("user: -x", 'user: found "-x"', "a system user's name"),
    ('user: "sglang\\n"', 'user: found "sglang\\n"', "a system user's name"),
    ("hardening: stict", 'hardening: found "stict"', 'did you mean "strict"?'),
    ("version: latest", 'version: found "latest"', "an SGLang release"),
    ("replaces: [a/b.service]", 'replaces[0]: found "a/b.service"', "without a slash"),
    ("replaces: [../x.service]", 'replaces[0]: found "../x.service"', "without a slash"),
    ("replaces: [vllm]", 'replaces[0]: found "vllm"', "ends in .service"),
    ('replaces: ["a.service\\n"]', 'replaces[0]: found "a.service\\n"', "ends in .service"),
    ("replaces: [-a.service]", 'replaces[0]: found "-a.service"', "ends in .service"),
    ("replaces: [sglang-e.service]", "replaces[0]: found", "units of other engines"),
    ("replaces: [sglangctl-switch.service]", "replaces[0]: found", "of other engines"),
    ("replaces: [sglang-watch@e.service]", "replaces[0]: found", "of other engines"),
    ("replaces: [ssh.service]", 'replaces[0]: found "ssh.service", the way', "of other engines"),
    ("replaces: [sshd.service]", "replaces[0]: found", "of other engines"),
    ("replaces: [systemd-logind.service]", "replaces[0]: found", "of other engines"),
    ("replaces: [dbus-broker.service]", "replaces[0]: found", "of other engines"),
    ("replaces: [docker.service]", "replaces[0]: found", "name the container in `containers`"),
    ("replaces: [vllm@.service]", "replaces[0]: found", "a template, of which no unit runs"),
    ("drafter: {path: d}", 'drafter.path: found "d"', "an absolute path"),
    ("drafter: {}", "drafter.path: found nothing", "a draft model's folder (EAGLE3)"),
    ("drafter: {path: /d, steps: 3}", "drafter: found only steps", "all three or none"),
    (
        "drafter: {path: /d, steps: 3, topk: 1, draft_tokens: 3}",
        "drafter.draft_tokens: found 3",
        "4: with topk 1 it is steps + 1",
    ),
    ("drafter: {path: /d, algorithm: eagle3}", "drafter.algorithm", 'did you mean "EAGLE3"?'),
    ("flags: {tp_size: 8}", 'flags.tp_size: found the name "tp_size"', 'did you mean "tp-size"?'),
    ("flags: {--tp: 8}", 'flags.--tp: found the name "--tp"', "without the leading --"),
    ("flags: {mem_fraction_static: 1}", "flags.mem_fraction_static", 'mean "mem-fraction-static"?'),
    ("flags: {mem-fraction-statc: 1}", "flags.mem-fraction-statc", 'mean "mem-fraction-static"?'),
    ("flags: {wobble: 1}", "flags.wobble: found the unknown flag", "that SGLang 0.5.23 has"),
    ("flags: {port: 1}", "flags.port: found the flag --port", "set it with the key port"),
    ("flags: {por: 1}", "flags.por: found the flag --por, short for --port", "the key port"),
    ("flags: {tp: 2}", "flags.tp: found", "set it with the key tensor_parallel"),
    ("flags: {api-key: x}", "flags.api-key: found", "set it with the key api_key"),
    ("flags: {model-path: /x}", "flags.model-path: found", "model.path"),
    ("flags: {config: /x}", "flags.config: found", "flags in `flags` itself"),
    ("flags: {chat-template: --}", 'flags.chat-template: found "--"', "cannot be given"),
    (
        "flags: {chat-template: [a, --b]}",
        'flags.chat-template[1]: found "--b"',
        "does not begin with -",
    ),
    ('flags: {chat-template: "a\\0b"}', "flags.chat-template: found", "without NUL"),
    ('flags: {chat-template: "\\ud800"}', 'flags.chat-template: found "\\ud800"', "surrogates"),
    (
        'flags: {chat-template: {a: ["\\uffff"]}}',
        'flags.chat-template.a[0]: found "\\uffff"',
        "noncharacters",
    ),
    ('environment: {X: "\\U0001ffff"}', "environment.X: found", "noncharacters"),
    ("flags: {chat-template: [[1]]}", "flags.chat-template[0]: found [1]", "a number or a string"),
    ("environment: {A B: 1}", 'environment."A B": found the name "A B"', "a variable's name"),
    ('environment: {A: "x\\ny"}', 'environment.A: found "x\\ny"', "without line breaks"),
    ("environment: {A: true}", "environment.A: found true", "quote true and false"),
    ("environment: {INVOCATION_ID: x}", "environment.INVOCATION_ID: found", "is systemd's"),
    ("environment: {MAINPID: 1}", "environment.MAINPID: found", "is systemd's"),
    ("environment: {SGLANGCTL_ROOT: /x}", "environment.SGLANGCTL_ROOT: found", "is sglangctl's"),
    ("environment: {CUDA_DEVICE_ORDER: FASTEST_FIRST}", "environment.CUDA_DEVICE_ORDER", "PCI_BUS"),
    ("environment: {MAX_JOBS: many}", 'environment.MAX_JOBS: found "many"', "number above 0"),
    ("environment: {MAX_JOBS: 0}", "environment.MAX_JOBS: found 0", "a whole number above 0"),
    ("environment: {MAX_JOBS: 1.5}", "environment.MAX_JOBS: found 1.5", "a whole number above 0"),
    ("environment: {CUDA_HOME: cuda}", 'environment.CUDA_HOME: found "cuda"', "absolute path"),
    ("environment: {TRITON_CACHE_DIR: ''}", 'environment.TRITON_CACHE_DIR: found ""', "absolute"),
    ("environment: {HF_HOME: /a/../b}", 'environment.HF_HOME: found "/a/../b"', "without .."),
    ("environment: {LD_PRELOAD: /tmp/x.so}", 'environment.LD_PRELOAD: found "/tmp/x.so"', "root"),
    (
        "environment: {LD_PRELOAD: 'a.so:/usr/lib/b.so /var/cache/sglang/e/c.so'}",
        'environment.LD_PRELOAD: found "/var/cache/sglang/e/c.so"',
        "that only root can write",
    ),
    ("environment: {LD_PRELOAD: lib/x.so}", 'environment.LD_PRELOAD: found "lib/x.so"', "root"),
    ("environment: {LD_PRELOAD: //tmp/./x}", 'environment.LD_PRELOAD: found "//tmp/./x"', "root"),
    ("environment: {LD_PRELOAD: /var/lock/x.so}", "environment.LD_PRELOAD: found", "root"),
    ("environment: {LD_PRELOAD: /lib/../tmp/x}", "environment.LD_PRELOAD: found", "root"),
    ("environment: {LD_PRELOAD: /proc/self/cwd/x}", "environment.LD_PRELOAD: found", "root"),
    ("environment: {LD_PRELOAD: '/x/$ORIGIN/y'}", "environment.LD_PRELOAD: found", "root"),
    ("environment: {LD_AUDIT: /dev/shm/x}", "environment.LD_AUDIT: found", "root"),
    (
        "environment: {LD_LIBRARY_PATH: '/usr/lib:'}",
        'environment.LD_LIBRARY_PATH: found ""',
        "root",
    ),
    (
        "environment: {LD_LIBRARY_PATH: 'lib;/x'}",
        'environment.LD_LIBRARY_PATH: found "lib"',
        "root",
    ),
    (
        "environment: {LD_LIBRARY_PATH: /var/tmp}",
        'environment.LD_LIBRARY_PATH: found "/var/tmp"',
        "root",
    ),
    (
        "environment: {LD_DEBUG_OUTPUT: /tmp/x}",
        'environment.LD_DEBUG_OUTPUT: found "/tmp/x"',
        "root",
    ),
    ("environment: {HOME: /x}", "environment.HOME: found", "it is set from"),
    ("environment: {CUDA_VISIBLE_DEVICES: 0}", "environment.CUDA_VISIBLE_DEVICES", "from gpus"),
    ("environment: {NCCL_PROTO: LL}", "environment.NCCL_PROTO: found", "nccl.overrides"),
    ("environment: {NCCL_PROTOO: LL}", "environment.NCCL_PROTOO", 'mean "NCCL_PROTO"?'),
    ("nccl: {profile: latnecy}", "nccl.profile: found", 'did you mean "latency"?'),
    ("nccl: {overrides: {NCCL_BUFSIZE: 1}}", "nccl.overrides.NCCL_BUFSIZE", "NCCL_BUFFSIZE"),
    ("nccl: {overrides: {P2P_LEVEL: sys}}", "nccl.overrides.P2P_LEVEL", 'mean "SYS"?'),
    ("nccl: {overrides: {P2P_LEVEL: 4}}", "nccl.overrides.P2P_LEVEL: found 4", "LOC, NVL"),
    ("nccl: {overrides: {P2P_LEVEL: NVB}}", "nccl.overrides.P2P_LEVEL", "LOC, NVL"),
    ("nccl: {overrides: {P2P_DISABLE: yes}}", "nccl.overrides.P2P_DISABLE", "0 or 1"),
    ("nccl: {overrides: {PROTO: LL64}}", "nccl.overrides.PROTO", "LL, LL128, Simple"),
    ("nccl: {overrides: {ALGO: Rng}}", "nccl.overrides.ALGO", 'did you mean "Ring"?'),
    ("nccl: {overrides: {NTHREADS: 500}}", "nccl.overrides.NTHREADS", "64, 128"),
    ("nccl: {overrides: {BUFFSIZE: 16M}}", "nccl.overrides.BUFFSIZE", "a whole number"),
    ("nccl: {overrides: {BUFFSIZE: 1, NCCL_BUFFSIZE: 2}}", "nccl.overrides.BUFFSIZE", "once"),
    ('nccl: {overrides: {SOCKET_IFNAME: "a\\nb"}}', "nccl.overrides.SOCKET_IFNAME", "control"),
    ("install: {packages: [torch]}", 'install.packages[0]: found "torch"', "an exact pin"),
    ("install: {packages: ['torch>=2']}", "install.packages[0]", "an exact pin"),
    ("install: {packages: ['torch==2.*']}", "install.packages[0]", "an exact pin"),
    ("install: {packages: ['torch===2.9']}", "install.packages[0]", "an exact pin"),
    ("install: {packages: ['a @ git+https://h/a.git@main']}", "install.packages[0]", "40 digits"),
    ("install: {packages: ['a @ git+https://h/a.git']}", "install.packages[0]", "40 digits"),
    ("install: {packages: ['a @ hg+https://h/a']}", "install.packages[0]", "an exact pin"),
    ("install: {packages: ['sglang == 0.5.9']}", "install.packages[0]", "sglang==0.5.23"),
    ("install: {packages: [--pre]}", "install.packages[0]", "an exact pin"),
    ("install: {packages: [sglang==0.5.9]}", "install.packages[0]", "sglang==0.5.23"),
    ("install: {packages: [a==1, A==2]}", "install.packages[1]", "one pin for a"),
    ("install: {packages: [sgl-kernel==0.4.1]}", "install.packages[0]", "sglang-kernel"),
    ("install: {python: -m}", 'install.python: found "-m"', "a command such as"),
    ("install: {python: python3;id}", "install.python: found", "a command such as"),
    (
        "install: {pip_arguments: ['--index-url=https://u:p@h/']}",
        "install.pip_arguments[0]: found an address with credentials (not shown)",
        "without a password",
    ),
    ("readiness: {reachable_at: gpu1:8000}", "readiness.reachable_at", "http://"),
    ("readiness: {reachable_at: 'http://u:p@h'}", "readiness.reachable_at", "credentials"),
    ("readiness: {reachable_at: 'https://h/x?api_key=s'}", "readiness.reachable_at", "parameters"),
    (
        "flags: {model-loader-extra-config: {a: [{aws_secret_access_key_secret: planted}]}}",
        'flags.model-loader-extra-config: found the key "aws_secret_access_key_secret"',
        "no secrets within a flag's value",
    ),
    ("readiness: {degraded: ignore}", "readiness.degraded", "commit, fail"),
    ("readiness: {min_accept_length: 0.5}", "readiness.min_accept_length", "from 1 to 512"),
    ("readiness: {limits: {start: 9}}", "readiness.limits.start", 'mean "start_s"?'),
    (
        "readiness: {limits: {start_s: 0}}",
        "readiness.limits.start_s",
        "above 0 and at most 86400 (s)",
    ),
    ("readiness: {limits: {start_s: 1e300}}", "readiness.limits.start_s", "at most 86400 (s)"),
    ("readiness: {limits: {sample_s: 0.001}}", "readiness.limits.sample_s", "from 0.1 to 60 (s)"),
    ("flags: {help: true}", "flags.help: found the flag --help", "prints something and ends"),
    ("flags: {hel: true}", "flags.hel: found the flag --hel", "prints something and ends"),
    ("flags: {h: true}", "flags.h: found the flag --h, short for --host", "the key listen"),
    ("flags: {version: true}", "flags.version: found the flag", "prints something and ends"),
    ("environment: {PATH: /x}", "environment.PATH: found", "the virtual environment, CUDA_HOME"),
]


@pytest.mark.parametrize(("body", "begins", "holds"), ENGINE_MISTAKES)
def test_a_mistake_in_an_engine(body: str, begins: str, holds: str) -> None:
    (error,) = engine_errors(body)
    assert error.startswith(begins)
    assert holds in error
    assert "\n" not in error


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
    assert all(error.startswith(f"model.path: found {found}") for error in errors)


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
    said = f"a folder outside of {folder}: remove.py would delete it, keep weights elsewhere"
    for key, errors in (
        ("model.path", engine_errors("", f"{{path: {path}}}")),
        ("drafter.path", engine_errors(f"drafter: {{path: {path}}}")),
    ):
        (error,) = errors
        assert error.startswith(f"{key}: found ") and said in error


@pytest.mark.parametrize("path", ["/var/cache/sglang-models/m", "/opt/sglangs", "/var/lib/m"])
def test_folders_beside_ours_are_free(path: str) -> None:
    assert engine_errors(f"drafter: {{path: {path}}}", f"{{path: {path}}}") == []


def test_what_the_inventorys_owner_decides() -> None:
    """It changes the engine alone, and shows in the plan's diff of engine.env."""
    spec = engine(
        """
        environment:
          LD_PRELOAD: "/usr/lib/x86_64-linux-gnu/libtcmalloc.so.4:libiomp5.so"
          LD_LIBRARY_PATH: /usr/local/cuda/lib64:/opt/sglang/venvs/x/lib
          CUDA_DEVICE_ORDER: PCI_BUS_ID
          MAX_JOBS: 8.0
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
        ("hosts:\n  h: {}\n  h: {}\n", "hosts.yml:3: hosts.h: this key is there twice"),
        ("a: 1\na: 2\n", "hosts.yml:2: a: this key is there twice"),
        ("hosts: {h: [1\n", "hosts.yml:2: this is not YAML"),
        ("hosts:\n\th: 1\n", "hosts.yml:2: this is not YAML"),
        ("hosts: &a [*a]\n", "too deep or too large"),
        ("hosts: !!python/object:os.system {}\nx: !!binary aGk=\n", "a tag"),
        ("hosts: {h: {x: .inf}}\n", "not a finite number"),
        ("? [a]\n: 1\n", "a key must be a word"),
        ("hosts:\n  \x07\n", "hosts.yml:2: this is not YAML: the character U+0007"),
        ("hosts: " + "[" * 5000, "nested too deep"),
        ("hosts: {h: 1}\n---\nhosts: {}\n", "this is not YAML"),
        ("hosts: *nothing\n", "hosts.yml:1: this is not YAML"),
        ('hosts:\n  h: !!bool "x"\n', 'hosts.yml:2: hosts.h: a value that is no "bool"'),
        ('hosts:\n  h: !!int ""\n', 'hosts.yml:2: hosts.h: a value that is no "int"'),
        ('hosts:\n  h: !!float ""\n', 'hosts.yml:2: hosts.h: a value that is no "float"'),
        ("hosts:\n  h: !!timestamp x\n", "hosts.yml:2: hosts.h: a value that is no"),
        ("hosts:\n  h: !!float nine\n", "hosts.yml:2: hosts.h: a value that is no"),
        (f"hosts:\n  h: {'9' * 5000}\n", 'hosts.yml:2: hosts.h: a value that is no "int"'),
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
    with pytest.raises(InventoryError, match="is larger than 1024 KiB"):
        load_inventory(path)
    assert time.process_time() - before < 1


def test_many_values_are_refused_while_they_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roles.inventory.document.NODES", 500)
    # Counted while the file is read: what comes after is not even looked at.
    text = "hosts:\n" + "".join(f"  h{number}: 1\n" for number in range(600))
    with pytest.raises(InventoryError, match=r"hosts\.yml:25\d: too large: more than 500 values"):
        load(text + "  ]")


def test_an_alias_bomb_is_refused() -> None:
    levels = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    with pytest.raises(InventoryError, match="too deep or too large"):
        load("\n".join(["a0: &a0 [x]", *levels, "hosts: {h: {engines: {e: {}}}}"]))


def test_words_stay_words() -> None:
    spec = engine(
        "environment: {A: 'off', B: yes, C: 012, D: 12:30, E: 1e3}\nflags: {chat-template: no}"
    )
    assert spec.environment == {"A": "off", "B": "yes", "C": "012", "D": "12:30", "E": "1000"}
    assert spec.flags == {"chat-template": "no"}


@pytest.mark.parametrize(
    ("host", "begins"),
    [
        ("h: {engines: {}}", "hosts.h.engines: found an empty mapping; allowed: a mapping"),
        ("h: {engines: [e]}", 'hosts.h.engines: found ["e"]; allowed: a mapping'),
        ("h: {}", "hosts.h.engines: found nothing; allowed: engines is required"),
        ("h:", "hosts.h: found nothing; allowed: a mapping"),
        ("h: {engines: {E: {model: {path: /m}}}}", 'hosts.h.engines.E: found the name "E"'),
        ("h: {engines: {a/b: {model: {path: /m}}}}", "hosts.h.engines"),
        ("h: {engines: {-x: {model: {path: /m}}}}", "hosts.h.engines.-x: found the name"),
        ("h: {engines: {e: 5}}", "hosts.h.engines.e: found 5; allowed: a mapping"),
        ("h: {sudo: 1, engines: {e: {model: {path: /m}}}}", "hosts.h.sudo: found 1"),
        ("h: {ssh: {port: 0}, engines: {e: {model: {path: /m}}}}", "hosts.h.ssh.port: found 0"),
        ("h: {ssh: {usr: x}, engines: {e: {model: {path: /m}}}}", "hosts.h.ssh.usr: found"),
        ("h: {protected: [a/b], engines: {e: {model: {path: /m}}}}", "hosts.h.protected[0]"),
        ("'@dokcer/x': {engines: {e: {model: {path: /m}}}}", 'hosts."@dokcer/x": found the host'),
        ("'a b': {engines: {e: {model: {path: /m}}}}", 'hosts."a b": found the host name "a b"'),
        ("'-oX=y': {engines: {e: {model: {path: /m}}}}", 'hosts."-oX=y": found the host name'),
        ("'@docker/--privileged': {engines: {}}", 'hosts."@docker/--privileged": found the host'),
        ("'@dockerssh/h:-x': {engines: {}}", 'hosts."@dockerssh/h:-x": found the host name'),
        ("'@ssh/-oProxyCommand=x': {engines: {}}", 'hosts."@ssh/-oProxyCommand=x": found the host'),
        ("'@local/x': {engines: {e: {model: {path: /m}}}}", 'hosts."@local/x": found the host'),
    ],
)
def test_a_mistake_in_a_host(host: str, begins: str) -> None:
    errors = only(load(f"hosts:\n  {host}\n")).errors
    assert errors
    assert errors[0].split(": ", 1)[1].startswith(begins)


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
    assert [line.split(": ", 1)[1] for line in errors] == [
        "hosts.h.engines.b.gpus: found GPU 1, which engine a has, too; allowed: GPUs of its own "
        "for each engine",
        "hosts.h.engines.b.port: found 30000, which engine a has, too; allowed: a port of its own "
        "for each engine",
    ]


def shared(a: str, b: str) -> list[str]:
    """What is wrong with two engines of one host, with these further keys."""
    text = (
        "hosts: {h: {engines: {a: {model: {path: /m}, port: 1, %s}, b: {model: {path: /m}, %s}}}}"
    )
    return [line.split("engines.", 1)[1] for line in only(load(text % (a, b))).errors]


def test_two_engines_that_take_all_gpus_are_told_before_the_switch() -> None:
    for a, b, found in (
        ("gpus: all", "gpus: all", "all, while engine a has all of them"),
        ("gpus: all", "gpus: [1]", "GPU 1, while engine a has all of them"),
        ("gpus: [0, 1]", "gpus: all", "all, while engine a has GPU 0, 1"),
        ("gpus: all, flags: {device: cuda}", "hardening: strict", "all, while engine a has all"),
    ):
        (error,) = shared(a, b)
        assert error.startswith(f"b.gpus: found {found}")
        assert "the flag `device: cpu`" in error


def test_an_engine_on_the_processor_shares_gpus_with_anybody() -> None:
    assert shared("gpus: all", "gpus: all, flags: {device: cpu}") == []
    assert shared("gpus: [0], flags: {device: cpu}", "gpus: [0]") == []
    assert shared("gpus: [0]", "gpus: [1]") == []


def test_an_engine_does_not_replace_its_sibling() -> None:
    (error,) = shared("gpus: [0]", "gpus: [1], replaces: [sglang-a.service]")
    assert error.startswith('b.replaces[0]: found "sglang-a.service", engine a of the same host')
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
    assert errors[0].endswith('did you mean "kimi"?')


def test_an_unknown_key_at_the_top_concerns_every_host() -> None:
    inventory = load("engine: {}\nhosts: {a: {engines: {e: {model: {path: /m}}}}}\n")
    (error,) = only(inventory).errors
    assert "engine: found an unknown key; allowed: engines and hosts" in error
    assert error.endswith('did you mean "engines"?')


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
