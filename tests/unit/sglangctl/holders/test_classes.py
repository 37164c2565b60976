from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglangctl.holders import classes
from sglangctl.holders.classes import Context, Process, Replaced, classify

VLLM_UID = 990
CONTEXT = Context(
    unit="sglang-kimi.service",
    siblings={"sglang-qwen.service": "qwen"},
    replaced=[Replaced("vllm-kimi.service", VLLM_UID, "vllm", main_pid=700, main_start_s=50.0)],
    protected=["my-metrics", "jupyter.service", "keep-me"],
    containers=["vllm-box"],
)


def process(*argv: str, comm: str = "", **facts: object) -> Process:
    values = {
        "pid": 800,
        "uid": 1000,
        "comm": comm or argv[0].rpartition("/")[2][:15],
        "session": 800,
        "start_s": 60.0,
        **facts,
    }
    return Process(argv=argv, **values)  # type: ignore[arg-type]


def class_of(*argv: str, **facts: object) -> str:
    return classify(process(*argv, **facts), CONTEXT).name


@pytest.mark.parametrize(
    "argv",
    [
        ("VLLM::EngineCore",),
        ("VLLM::Worker_TP0",),
        ("VLLM::APIServer_1", "more"),
        ("/opt/vllm/bin/python", "/opt/vllm/bin/vllm", "serve", "/models/kimi"),
        ("python3.12", "-u", "-m", "vllm.entrypoints.openai.api_server"),
        ("/usr/bin/vllm", "serve", "x"),
        ("sglang::scheduler_TP0",),
        ("sglang::detokenizer",),
        ("python", "-m", "sglang.launch_server", "--port", "8000"),
        ("python3", "-X", "dev", "-W", "ignore", "-B", "-m", "sglang.launch_server"),
        ("/opt/venv/bin/python", "/opt/venv/bin/sglang", "serve"),
        ("text-generation-launcher", "--port", "80"),
        ("/usr/local/bin/text-generation-server", "serve", "x"),
        ("/opt/llama.cpp/llama-server", "-m", "x.gguf"),
        ("/usr/local/bin/ollama", "serve"),
        ("/usr/local/bin/ollama", "runner", "--model", "x"),
        ("python3", "/usr/local/bin/trtllm-serve", "x"),
        ("python3", "-m", "tensorrt_llm.commands.serve"),
        ("tritonserver", "--model-repository=/x"),
        ("ray::RolloutWorker.step",),
        ("ray::IDLE",),
        (
            "python",
            "-u",
            "/venv/lib/python3.11/site-packages/ray/_private/workers/default_worker.py",
        ),
    ],
)
def test_engines_are_recognised_by_title_or_command(argv: tuple[str, ...]) -> None:
    assert class_of(*argv) == "engine"


@pytest.mark.parametrize(
    "argv",
    [
        ("grep", "sglang.launch_server", "notes.txt"),
        ("vim", "sglang.launch_server"),
        ("less", "vllm", "serve"),
        ("python", "train.py", "-m", "sglang.launch_server"),
        ("python", "-c", "import sglang.launch_server", "vllm", "serve"),
        ("python", "-m", "sglang_launch_server"),
        ("python", "-m", "sglang.launch_server_of_mine"),
        ("python", "-m"),
        ("python",),
        ("tail", "-f", "VLLM::Worker.log"),
        ("bash", "-c", "vllm serve x"),
        ("/home/bob/vllm-notes", "serve"),
        ("vllm", "bench", "serve"),
        ("ollama", "list"),
        ("/home/VLLM::Worker/train",),
        ("",),
    ],
)
def test_a_word_in_the_command_line_is_no_engine(argv: tuple[str, ...]) -> None:
    assert class_of(*argv) == "foreign"
    assert classes.engine_of([]) is None


def test_ours_and_sibling_by_unit_alone() -> None:
    assert class_of("anything", unit="sglang-kimi.service") == "ours"
    assert class_of("VLLM::Worker", unit="sglang-qwen.service") == "sibling"
    assert class_of("sglang::scheduler") == "engine"
    # Ours even if its title is on the list of what is never ended: it is our own unit.
    assert class_of("Xorg", unit="sglang-kimi.service") == "ours"


def test_everything_in_a_replaced_unit_is_replaced() -> None:
    found = classify(process("python", "-c", "spawn_main", unit="vllm-kimi.service"), CONTEXT)
    assert found.name == "replaced"
    assert found.reason == "in vllm-kimi.service, which the inventory replaces"


def orphan(**facts: object) -> str:
    values: dict[str, object] = {"uid": VLLM_UID, "session": 700, "unit": "session-3.scope"}
    values.update(facts)
    return class_of("VLLM::EngineCore", **values)


def test_an_orphan_needs_title_user_session_and_age() -> None:
    assert orphan() == "replaced"
    assert orphan(unit=None) == "replaced"
    assert orphan(uid=1000) == "engine"  # same title, another user
    assert orphan(session=701) == "engine"  # same title and user, started by hand
    assert orphan(start_s=40.0) == "engine"  # older than the unit's main process
    assert orphan(container="a" * 64) == "engine"
    assert class_of("python", "-c", "x", uid=VLLM_UID, session=700) == "foreign"
    assert class_of("grep", "VLLM::Worker", uid=VLLM_UID, session=700) == "foreign"


def test_no_orphan_of_a_unit_that_never_ran() -> None:
    context = Context(replaced=[Replaced("a.service", 0, "root", main_pid=0)])
    assert classify(process("VLLM::Worker", uid=0, session=0), context).name == "engine"


def test_why_a_same_titled_process_of_another_user_is_not_replaced() -> None:
    found = classify(process("VLLM::Worker", uid=1234), CONTEXT)
    assert found.reason == (
        "vLLM, by its title VLLM::Worker, of another user than vllm-kimi.service (vllm)"
    )


@pytest.mark.parametrize(
    ("argv", "facts"),
    [
        (("x",), {"program": "/usr/bin/nvidia-persistenced"}),
        (("x",), {"program": "/usr/bin/nv-fabricmanager"}),
        (("x",), {"program": "/usr/bin/nv-hostengine"}),
        (("x",), {"program": "/usr/lib/xorg/Xorg"}),
        (("x",), {"program": "/usr/bin/Xwayland"}),
        (("x",), {"program": "/usr/bin/gnome-shell"}),
        (("x",), {"program": "/usr/bin/kwin_wayland"}),
        (("x",), {"program": "/usr/bin/nvidia-smi"}),
        (("nv",), {"unit": "nvidia-persistenced.service"}),
        (("/opt/my-metrics",), {}),
        (("renamed",), {"comm": "my-metrics"}),
        (("python", "notebook.py"), {"unit": "jupyter.service"}),
        (("VLLM::Worker",), {"container": "c" * 64, "container_name": "keep-me"}),
        (("python3", "sglangctl.pyz", "watch"), {"unit": "sglang-watch@kimi.service"}),
        (("python3", "sglangctl.pyz"), {"unit": "sglangctl-switch.service"}),
    ],
)
def test_protected(argv: tuple[str, ...], facts: dict[str, object]) -> None:
    assert class_of(*argv, **facts) == "protected"
    # Never ended, also inside a unit that is to be replaced.
    if "unit" not in facts:
        assert class_of(*argv, **{**facts, "unit": "vllm-kimi.service"}) == "protected"


@pytest.mark.parametrize(
    ("argv", "comm"),
    [
        (("/usr/bin/nvidia-persistenced", "--user", "x"), ""),
        (("renamed",), "nvidia-persiste"),  # the kernel keeps 15 bytes
        (("/usr/lib/xorg/Xorg", ":0"), ""),
        (("python", "train.py"), "Xorg"),  # one prctl
        (("nvidia-smi", "dmon"), ""),
    ],
)
def test_a_name_alone_protects_nobody(argv: tuple[str, ...], comm: str) -> None:
    found = classify(process(*argv, comm=comm, program="/usr/bin/python3"), CONTEXT)
    assert found.name == "foreign" and "calls itself" in found.reason
    assert class_of(*argv, comm=comm, unit="vllm-kimi.service") == "replaced"


def test_containers_by_name_only_where_the_inventory_names_them() -> None:
    box = {"container": "d" * 64}
    assert class_of("VLLM::Worker", container_name="vllm-box", **box) == "replaced"
    assert class_of("python", "x.py", container_name="vllm-box", **box) == "replaced"
    assert class_of("VLLM::Worker", container_name="other", **box) == "engine"
    assert class_of("python", "x.py", **box) == "foreign"


def test_no_policy_ever_ends_protected_sibling_or_ours() -> None:
    for allowed in classes.POLICIES.values():
        assert not allowed & {"protected", "sibling", "ours"}
    assert classes.POLICIES["declared"] == {"replaced"}


TEXT = st.text(max_size=60)


@given(argv=st.lists(TEXT, max_size=6), comm=TEXT, unit=st.none() | TEXT, uid=st.integers(0, 2000))
def test_any_process_has_a_class_and_a_reason(
    argv: list[str], comm: str, unit: str | None, uid: int
) -> None:
    found = classify(Process(1, uid, comm, argv, 1, 1.0, unit=unit), CONTEXT)
    assert found.name in classes.CLASSES
    assert found.reason


@pytest.mark.parametrize(
    ("arguments", "target"),
    [
        (("-m", "vllm", "serve", "x"), ("vllm", None, ["serve", "x"])),
        (("-u", "-m", "vllm"), ("vllm", None, [])),
        (("-X", "dev", "/x/run.py", "-m"), (None, "/x/run.py", ["-m"])),
        (("-B", "run.py"), (None, "run.py", [])),
        (("-c", "import x", "run.py"), (None, None, [])),
        (("-", "run.py"), (None, None, [])),
        (("-m",), (None, None, [])),
        (("-u",), (None, None, [])),
        ((), (None, None, [])),
    ],
)
def test_what_python_runs(
    arguments: tuple[str, ...], target: tuple[str | None, str | None, list[str]]
) -> None:
    assert classes.python_target(arguments) == target
    argv = ["/usr/bin/python3.12", *arguments]
    assert classes.script_of(argv[0], argv) == target[1]
    assert classes.script_of("/usr/bin/bash", argv) is None


@pytest.mark.parametrize(
    ("facts", "against"),
    [
        ({"unit": "other.service", "uid": VLLM_UID}, ", in other.service"),
        ({"uid": VLLM_UID + 1}, ", of another user than vllm-kimi.service (vllm)"),
        ({"uid": VLLM_UID}, "by its title VLLM::EngineCore"),
    ],
)
def test_what_speaks_against_replaced_ends_the_reason(
    facts: dict[str, object], against: str
) -> None:
    found = classify(process("VLLM::EngineCore", **{"session": 1, **facts}), CONTEXT)
    assert found.name == "engine" and found.reason.endswith(against)
