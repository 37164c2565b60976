# Everything a person runs. Each target does all of its own set-up, and does it once:
#   make demo       the main job: a host that serves, on this machine, with the real engine
#   make check      lint, types, docs, unit tests: under two minutes
#   make docs       docs/ as a site, in build/docs; dead links and stale tables are errors
#   make test       all of that and the container hosts: what .ci/run calls
#   make check-pythons  the host program's tests on every Python from 3.9 to 3.14 that is here, by hand
#   make mutants    do the pure core's own tests notice small changes of it? By hand, half an hour
#   make test-real  the full matrices on real engines; writes docs/evidence/<date>.json
#   make test-hosts  every kind of host, and everything that a deploy makes lost and put back; docs/evidence/hosts.json
#   make gpu-check SETTINGS=FILE  the product on a real GPU host: tests/gpu/README.md
#   make clean-demo, make clean
# VENV may name another Python environment, PYTHON another Python (3.10 or newer).
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
SAY = $(PYTHON) -m tests.hosts.say

# One run of pytest, so that its closing line counts everything, by file on several processes: most
# tests wait for something. -m replaces pyproject's own "not slow"; the real engine's matrices have
# a target of their own, one after the other.
TESTS = tests/unit tests/golden tests/traces tests/kernel tests/container
PYTEST = $(BIN)/python -m pytest
SIDE_BY_SIDE = --dist loadfile -n

# Tests start this program and pyinfra hundreds of times: compiled once, not each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: check check-pythons mutants lint docs unit test test-real test-hosts gpu-check demo clean-demo clean images engine packages test-packages
check: lint
	@$(MAKE) --no-print-directory --jobs 2 docs unit

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.ready
	$(BIN)/python -m docs.tables
	$(BIN)/sphinx-build -q -W --keep-going --nitpicky -c docs . build/docs
	$(PYTEST) -q tests/unit/test_pages.py

unit: $(VENV)/.ready
	$(PYTEST) -q $(SIDE_BY_SIDE) 3

check-pythons: $(VENV)/.ready
	@$(BIN)/python -m tests.hosts.pythons $(ARGS)

mutants: $(VENV)/.ready
	@$(BIN)/python -m benchmarks.mutants $(ARGS)

# A test whose tool is missing is left out elsewhere, and fails here.
test: export SGLANG_TESTS_HAVE_ALL_TOOLS = 1
test: lint docs test-packages images
	$(PYTEST) -q $(SIDE_BY_SIDE) 3 -m "not real" --hypothesis-profile=thorough \
		$(wildcard $(TESTS)) $(ARGS)

test-real: images
	@tests/hosts/packages.sh real
	$(PYTEST) -q -m real -p tests.hosts.evidence $(wildcard tests/real tests/container) $(ARGS)

test-hosts: images
	@$(BIN)/python -m tests.hosts.images debian11 debian13
	EVIDENCE=hosts $(PYTEST) -q $(SIDE_BY_SIDE) 2 -m real -p tests.hosts.evidence \
		$(wildcard tests/container/test_host_*.py tests/container/test_hosts_*.py) \
		tests/container/test_put_back.py $(ARGS)

gpu-check: $(VENV)/.ready
	$(BIN)/python -m tests.gpu.run $(SETTINGS) $(ARGS)

demo: images
	@$(BIN)/python -m tests.hosts.demo

clean-demo:
	@$(PYTHON) -m tests.hosts.clean sglang-demo

# Containers, images and Docker engine of this checkout, and what was installed for it.
clean:
	@$(PYTHON) -m tests.hosts.clean --all
	@tests/hosts/docker_engine.sh stop
	@rm -rf .cache $(VENV)
	@echo "clean: the Python environment and .cache are gone"

images: $(VENV)/.ready engine
	@$(BIN)/python -m tests.hosts.images base engine

engine: packages
	@tests/hosts/docker_engine.sh start

packages:
	@tests/hosts/packages.sh all

test-packages:
	@tests/hosts/packages.sh test

$(VENV)/.ready: pyproject.toml
	@tests/hosts/packages.sh check
	@$(SAY) "Making the Python environment $(VENV)" $(PYTHON) -m venv $(VENV)
	@$(SAY) "Installing pyinfra, pytest and the rest into it" \
		$(BIN)/python -m pip install --disable-pip-version-check --editable '.[test,docs]'
	@touch $@
