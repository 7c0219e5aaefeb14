# Two commands do everything on a fresh machine: `make demo` and `make test`.
.DEFAULT_GOAL := help
.PHONY: help setup demo check types lint layers assertions quick unit collected test test-hosts test-cluster matrix test-ways test-pythons mutants fuzz bench schema interfaces messages vocabulary session docs dist release clean

PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

help: ## Show what can be made
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1\t\2/p' Makefile

setup: $(READY) ## Set up .venv with drumline and its tools

$(READY): pyproject.toml constraints/dev.txt
	@scripts/install $(PYTHON)=$(notdir $(PYTHON)) git=git
	@$(PYTHON) -c 'import ensurepip' 2> /dev/null || scripts/install $(notdir $(PYTHON))-venv
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group dev --editable .
	@touch $(READY)

demo: $(READY) ## Train a real model on two workers here
	scripts/demo

# Side by side, the output of each in one piece.
BESIDE := $(MAKE) --no-print-directory --output-sync=target
CHECKS := types lint layers assertions

check: $(READY) ## Lint, types, layers, and that every test asserts something
	@$(BESIDE) --jobs=2 $(CHECKS)

types: $(READY)
	@scripts/cached --restore
	$(BIN)/mypy
	@scripts/cached --keep

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

layers: $(READY)
	$(BIN)/lint-imports

assertions: $(READY)
	PYTHONPATH=tests $(BIN)/python -m assertions

quick: $(READY) ## Lint, types and unit tests, in a minute
	@$(BESIDE) --jobs=3 unit $(CHECKS)

unit: $(READY)
	DRUMLINE_TEST_QUICK=1 $(BIN)/python -m pytest -q -n 2 tests/unit

collected: $(READY)
	$(BIN)/python -m pytest -q --collect-only > /dev/null  # once, else each worker compiles all tests

test: $(READY) ## All checks, and all tests that need no cluster
	@$(BESIDE) --jobs=2 collected $(CHECKS)
	scripts/environment tensorflow tensorboard torch jax
	scripts/environment --example estimator
	scripts/pythons --wheels
	$(BIN)/python -m pytest -n 6 --maxschedchunk 1

test-cluster: $(READY) ## Tests on a real Kubernetes: the one that KUBECONFIG names, else one that is brought up for them
	scripts/environment tensorflow
	$(if $(KUBECONFIG),,scripts/cluster/run) $(BIN)/python -m pytest -n 3 --maxschedchunk 1 tests/cluster

test-hosts: $(READY) ## Tests on several hosts, with real sshd's, that are brought up for them
	scripts/hosts/run --parts
	scripts/environment tensorflow
	scripts/environment --example estimator
	$(BIN)/python -m pytest -n 6 --maxschedchunk 1 tests/hosts

test-ways: $(READY) ## The tests of the local engine once more with warm replicas, those of trainings with cold ones
	scripts/environment tensorflow tensorboard torch jax
	scripts/environment --example estimator
	DRUMLINE_TEST_WARM=1 $(BIN)/python -m pytest -n 3 tests/integration/local
	DRUMLINE_TEST_COLD=1 $(BIN)/python -m pytest -n 3 tests/training

test-pythons: $(READY) ## The tests that need no framework, under every other Python that drumline is for and that is here
	scripts/environment tensorboard
	scripts/pythons --wheels
	scripts/pythons --test

matrix: $(READY) ## Inject every fault into every replica of small runs, and write docs/matrix.md
	scripts/environment tensorflow
	PYTHONPATH=tests $(BIN)/python -m matrix

mutants: $(READY) ## Change run/, plan/ and what engines share a little, and see whether unit tests notice: WORDS="run/pace --sample 50"
	DRUMLINE_TEST_QUICK=1 PYTHONPATH=tests $(BIN)/python -m mutants $(WORDS)

fuzz: $(READY) ## Try readers, histories and real runs with what chance makes up: SECONDS=600 RUNS=300 SEED=1
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(or $(SECONDS),600) $(if $(SEED),--seed $(SEED))
	PYTHONPATH=tests $(BIN)/python -m fuzz.kills --runs $(or $(RUNS),300) $(if $(SEED),--seed $(SEED))

bench: export DRUMLINE_FIGURES = build/figures.jsonl
bench: $(READY) ## Measure, as ratios side by side in one run, and write docs/figures.md
	$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group bench
	-scripts/install mpirun=openmpi-bin
	scripts/environment tensorflow torch
	$(BIN)/python -m compileall -q src  # as an installation does
	mkdir -p build && rm -f $(DRUMLINE_FIGURES)
	$(BIN)/python -m bench.plan
	$(BIN)/python -m bench.startup
	$(BIN)/python -m bench.monitor
	$(BIN)/python -m bench.start
	$(BIN)/python -m bench.recovery
	$(BIN)/python -m bench.failure
	$(BIN)/python -m bench.training
	TORCHRUN="$$(scripts/environment --path torch)/bin/torchrun" $(BIN)/python -m bench.launch
	scripts/hosts/run 10 $(BIN)/python -m bench.hosts
	$(if $(KUBECONFIG),,scripts/cluster/run) $(BIN)/python -m bench.submit
	$(BIN)/python -m bench.figures $(DRUMLINE_FIGURES) > docs/figures.md

schema: $(READY) ## Write the JSON Schema anew after a change of the spec's types
	$(BIN)/python -c "from drumline.cli.schema import command; command()" > tests/golden/schema.json.new
	mv tests/golden/schema.json.new tests/golden/schema.json

messages: $(READY) ## List every text that a user can read anew after a change of one
	PYTHONPATH=tests $(BIN)/python -m messages

interfaces: $(READY) ## Write docs/interfaces.txt after a change of a stable interface, and say what changed
	PYTHONPATH=tests $(BIN)/python -m interfaces

vocabulary: $(READY) ## Print the retired words that texts and names have
	PYTHONPATH=tests $(BIN)/python -m vocabulary

session: $(READY) ## Record the session that README shows, and draw it anew
	PYTHONPATH=tests $(BIN)/python -m session

docs: $(READY) ## Build README and docs as a site with search into build/docs/site
	scripts/site build/docs
	@echo 'to read it: $(BIN)/python -m http.server --bind 127.0.0.1 --directory build/docs/site'

dist: $(READY) ## Build wheel and sdist into dist/, and check both
	$(BIN)/python -m pip install --quiet --constraint constraints/dev.txt --group dist
	rm -rf dist
	$(BIN)/hatchling build
	$(BIN)/twine check --strict dist/*
	$(BIN)/check-wheel-contents dist/*.whl

release: $(READY) ## Prepare a release, try it as users install it, and print how to publish it: VERSION=1.2.3
	scripts/release '$(VERSION)'

clean: ## Remove what was set up here
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
