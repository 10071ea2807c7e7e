# make venv | demo | test | lint ...: `make help` lists them.
# Needs python3 (3.11 or 3.12), make and a C++ compiler; everything else is installed
# into .venv by `make venv`, into .venv-tf-* for other versions of TensorFlow.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# The programs of .venv come first; horovodrun finds its python there.
export PATH := $(CURDIR)/$(BIN):$(PATH)
# TensorFlow's start-up messages would bury what the commands print.
export TF_CPP_MIN_LOG_LEVEL ?= 3
# Where this is set, as in many containers, each process compiles all that it imports:
# TensorFlow and Keras then take 8 s of CPU time, else 2.5 s.
unexport PYTHONDONTWRITEBYTECODE

HOROVOD_BUILD := HOROVOD_WITH_TENSORFLOW=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
  HOROVOD_WITHOUT_PYTORCH=1 HOROVOD_WITHOUT_MXNET=1
# Horovod's build type has -g, which takes a third of the compiler's time. It builds Gloo
# twice, and TensorFlow of C++17 needs only the copy of that name. Several sources in one
# compilation take a third less; those that are skipped cannot be with others. Without CUDA:
# CMake tries its compiler where there is one.
define TOOLCHAIN_LINES
set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-O3 -DNDEBUG" CACHE STRING "")
set(CMAKE_CUDA_COMPILER NOTFOUND CACHE STRING "")
set(CMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit ON)
cmake_language(DEFER CALL cmake_language EVAL CODE "
  if(TARGET gloo AND TARGET compatible17_gloo)
    set_target_properties(gloo PROPERTIES EXCLUDE_FROM_ALL ON)
    set_target_properties(compatible17_gloo tensorflow PROPERTIES UNITY_BUILD ON)
    set_source_files_properties(
      horovod/tensorflow/mpi_ops.cc horovod/tensorflow/xla_mpi_ops.cc
      TARGET_DIRECTORY tensorflow PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    set_source_files_properties(
      third_party/compatible17_gloo/gloo/allreduce_local.cc
      TARGET_DIRECTORY compatible17_gloo PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
")
endef
export TOOLCHAIN_LINES
# --no-cache-dir: pip would reuse a wheel built for another TensorFlow, which fails late.
INSTALL_HOROVOD := CMAKE_TOOLCHAIN_FILE=$(CURDIR)/$(VENV)/horovod.cmake \
  $(HOROVOD_BUILD) pip install --quiet --no-build-isolation \
  --no-cache-dir --no-binary=horovod --constraint=constraints.txt horovod

# The tests of PyTorch need its build for the CPU, "+cpu". PyPI has no such build, but the
# build for CUDA of gigabytes; pip finds "+cpu" in an index of PyTorch or a folder that its
# configuration names. uv does not know the configuration.
INSTALL_TORCH := pip install --quiet --constraint=constraints.txt torch==2.13.0+cpu

# The ends of the range of TensorFlow in setup.cfg, a constraints-%.txt each.
TENSORFLOWS := 2.16 2.21
TENSORFLOW_TESTS := $(TENSORFLOWS:%=test-tf-%)
TENSORFLOW_VENVS := $(TENSORFLOWS:%=.venv-tf-%/ready)

# uv needs a tenth of pip's time, but knows nothing of pip's configuration: where uv
# fails, pip installs. It trusts the certificates of the machine, as pip does.
INSTALL = $(@D)/bin/pip install --quiet --constraint=$(CONSTRAINTS) pip setuptools uv wheel && \
  (UV_SYSTEM_CERTS=1 $(@D)/bin/uv pip install --quiet --python=$(@D)/bin/python $(WANTED) \
   || $(@D)/bin/pip install --quiet $(WANTED))
WANTED = --constraint=$(CONSTRAINTS) --no-build-isolation --editable $(PACKAGES)

# What small commands import: uv compiles nothing, and a shell may forbid it to Python.
COMPILED = tfpipe converters benchmarks $(VENV)/lib/python*/site-packages/{absl,duckdb,numpy,PIL,tqdm}

DEMO := demo
DEMO_RANKS := 2

.PHONY: help
help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

.PHONY: venv
venv: $(VENV)/native  ## Make .venv with the reference stack and prove that Horovod works

$(VENV)/ready: CONSTRAINTS = constraints.txt
$(VENV)/ready: PACKAGES = '.[test,tfds,s3,report]' 'cmake<4' packaging cloudpickle psutil pyyaml
$(VENV)/ready: setup.cfg pyproject.toml constraints.txt $(wildcard requirements-*.txt)
	@$(MAKE) --no-print-directory check-machine
	rm -rf $(VENV)
	$(PYTHON) -m venv $(VENV)
	$(INSTALL)
	$(INSTALL_TORCH) || echo "pip finds no PyTorch for the CPU: its tests are skipped."
	python -m compileall -q $(COMPILED)
	@echo "Building Horovod for this TensorFlow: about 2 minutes on 2 cores."
	@echo "$$TOOLCHAIN_LINES" > $(VENV)/horovod.cmake
	$(INSTALL_HOROVOD)
	@$(MAKE) --no-print-directory check-horovod
	touch $@

$(VENV)/native: $(VENV)/ready $(wildcard tfpipe/native/src/* tfpipe/native/*.py)
	python -m tfpipe.native || echo "Without it TensorFlow's own ops decode and crop."
	touch $@

.PHONY: check-machine
check-machine:  ## Say which system packages are missing, if any
	@missing=(); \
	$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3 python3-venv); \
	command -v c++ >/dev/null || missing+=(g++); \
	command -v make >/dev/null || missing+=(make); \
	if (($${#missing[@]})); then \
	  echo "Missing on this machine. Install it with:" >&2; \
	  echo "  apt-get install -y $${missing[*]}" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if (3, 11) <= v < (3, 13) else \
	  "Python 3.11 or 3.12 is needed, $(PYTHON) is %d.%d. Name another one: make venv PYTHON=python3.11" % v[:2])'

.PHONY: check-horovod
check-horovod:  ## Prove that Horovod was built with TensorFlow and Gloo and adds up
	@horovodrun --check-build > $(VENV)/check-build.txt 2>/dev/null
	@grep -q '\[X\] TensorFlow' $(VENV)/check-build.txt
	@grep -q '\[X\] Gloo' $(VENV)/check-build.txt
	horovodrun -np 2 python -m benchmarks.distributed.ranks

.PHONY: demo
demo: venv  ## From nothing to a trained model and a report, in demo/
	rm -rf $(DEMO)
	python -m converters.synthesize --output_dir=$(DEMO)/raw \
	  --num_images=2000 --num_validation_images=500 --num_classes=10
	python -m converters.imagenet --input_dir=$(DEMO)/raw --output_dir=$(DEMO)/records \
	  --num_train_shards=8 --num_validation_shards=2
	horovodrun -np $(DEMO_RANKS) python -m benchmarks.input --data_dir=$(DEMO)/records \
	  --model=tiny --batch_size=32 --seconds=1 --time_limit=120 \
	  --tuning=$(DEMO)/tuning.json --report_dir=$(DEMO)/results
	horovodrun -np $(DEMO_RANKS) python -m benchmarks.train --data_dir=$(DEMO)/records \
	  --model=tiny --batch_size=32 --num_epochs=15 --tuning=$(DEMO)/tuning.json \
	  --checkpoint_dir=$(DEMO)/checkpoint --report_dir=$(DEMO)/results
	horovodrun -np $(DEMO_RANKS) python -m benchmarks.train --data_dir=$(DEMO)/records \
	  --model=tiny --mode=eval --batch_size=32 \
	  --checkpoint_dir=$(DEMO)/checkpoint --report_dir=$(DEMO)/results
	python -m benchmarks.report --results=$(DEMO)/results --output=$(DEMO)/report.html
	@echo "The report: $(CURDIR)/$(DEMO)/report.html"

.PHONY: test
test: venv lint test-fast test-slow  ## Lint, types and every test

.PHONY: lint
lint: venv  ## Style, types and who may import whom
	ruff check
	ruff format --check
	clang-format --dry-run --Werror tfpipe/native/src/*
	mypy
	lint-imports --no-logo

.PHONY: lint-native
lint-native: venv  ## clang-tidy over the C++: likely faults, needless copies; half a minute
	command -v clang-tidy >/dev/null || pip install --quiet --constraint=constraints.txt clang-tidy
	clang-tidy --quiet tfpipe/native/src/*.cc -- $$(python -c \
	  'from tfpipe.native.build import compile_flags; print(*compile_flags())')

.PHONY: test-fast
test-fast: venv  ## The unit tests and the rules of the house: two minutes
	pytest -q -n 2 --dist worksteal tests/unit tests/house

.PHONY: test-slow
test-slow: venv  ## Real ranks, wheels, training; kills and damage; real clocks, alone
	pytest -q -n 4 --dist loadfile --no-loadscope-reorder tests/torture tests/system
	pytest -q tests/timing

.PHONY: golden
golden: venv  ## Write the golden files again: help, last lines and errors of all commands
	REWRITE_GOLDEN=1 pytest -q tests/house/test_golden.py tests/system/test_golden.py

.PHONY: docs
docs: venv  ## Build the site of the documents: build/site/index.html
	sphinx-build -q -W --keep-going -j auto -d build/doctrees -b html docs build/site
	@echo "file://$(CURDIR)/build/site/index.html"

.PHONY: torture
torture: venv .venv-tf-2.21/ready  ## A tenth of all campaigns, by the hundred; the documents: two hours
	TORTURE=0.1 pytest -q -n 2 --dist loadfile -o faulthandler_timeout=7200 tests/torture tests/system/docs
	TORTURE=1 .venv-tf-2.21/bin/pytest -q tests/system/docs/test_pages.py

.PHONY: campaigns
campaigns: venv  ## The attacks behind docs/evidence/guarantees.md in their long form: hours; goes on where it stopped
	@python -c 'import mfusepy' 2>/dev/null || pip install --quiet --constraint=constraints.txt mfusepy
	python -m tests.torture.campaigns $(CAMPAIGNS)

.PHONY: audit
audit: venv  ## build/sbom.json, and known vulnerabilities of its packages; "not audited" out of reach
	mkdir -p build && python -m tests.house.sbom > build/sbom.json
	rm -f build/audit.json
	pip install --quiet --constraint=constraints.txt pip-audit && pip-audit --strict \
	  --skip-editable --format=json --output=build/audit.json \
	  || { test -s build/audit.json && exit 1 || echo "not audited"; }

.PHONY: mutants
mutants: venv  ## Small faults in the rooms that guard data, which the unit tests must see: half an hour
	@python -c 'import cosmic_ray, coverage' 2>/dev/null || pip install --quiet --constraint=constraints.txt \
	  --no-build-isolation --editable '.[mutants]'
	python tests/torture/mutants.py $(MUTANTS)

.PHONY: test-tensorflow
test-tensorflow: test-tf-reference $(TENSORFLOW_TESTS)  ## The fast tests on the whole TensorFlow of .venv, the oldest and the newest

.PHONY: test-tf-reference
test-tf-reference: venv
	UNIT_TESTS_WITH_GRAPPLER=1 pytest -q -n 2 --dist worksteal tests/unit

# JAX needs a newer NumPy than the reference stack has.
test-tf-2.21: TEST_JAX = $(<D)/bin/python -c "import jax" && \
  $(<D)/bin/pytest -q tests/system/tfpipe/consumers/test_jax.py

.PHONY: $(TENSORFLOW_TESTS)
$(TENSORFLOW_TESTS): test-tf-%: .venv-tf-%/ready
	$(<D)/bin/python -m tfpipe.native || echo "Its tests are skipped."
	UNIT_TESTS_WITH_GRAPPLER=1 $(<D)/bin/pytest -q -n 2 --dist worksteal tests/unit tests/house
	$(<D)/bin/pytest -q tests/system/test_golden.py tests/system/test_commands.py -k "last_lines or messages"
	$(TEST_JAX)

# No Horovod and no tensorflow-io: they cannot be had beside the newest one.
$(TENSORFLOW_VENVS): CONSTRAINTS = $(@D)/constraints.txt
$(TENSORFLOW_VENVS): PACKAGES = '.[test]'
.venv-tf-2.21/ready: PACKAGES += jax
$(TENSORFLOW_VENVS): .venv-tf-%/ready: constraints-%.txt constraints.txt setup.cfg pyproject.toml \
    $(wildcard requirements-*.txt)
	@$(MAKE) --no-print-directory check-machine
	rm -rf $(@D)
	$(PYTHON) -m venv $(@D)
	awk -F'[=;]' 'NR == FNR {own[$$1]} NR == FNR || !($$1 in own)' $< constraints.txt \
	  > $(@D)/constraints.txt
	$(INSTALL)
	touch $@

.PHONY: cluster
cluster: venv  ## Several hosts on this machine: make cluster HOSTS=4 LINK=10gbit (root, Linux)
	python -m tests.support.servers.cluster --hosts=$(or $(HOSTS),2) $(LINK:%=--link=%)

.PHONY: size
size: venv  ## Print files and lines of code by room
	python -m tests.house.words size

.PHONY: words
words: venv  ## Print pronouns and empty names by file, and class names with two homes
	python -m tests.house.words

.PHONY: coverage
coverage: venv  ## The share of lines that all tests but the timed ones reach: about 15 minutes
	pip install --quiet --constraint=constraints.txt coverage
	rm -rf .coverage
	coverage run -m pytest -q -n 2 --dist loadfile tests/unit tests/house tests/system tests/torture
	coverage combine --quiet
	coverage report --skip-covered --sort=miss

.PHONY: fuzz
fuzz: venv  ## A million damaged images through the native op, under the sanitizers: about ten minutes
	python -m tfpipe.native --fuzz=1000000

.PHONY: format
format: venv  ## Format the code and sort its imports
	ruff check --fix
	ruff format
	clang-format -i tfpipe/native/src/*

.PHONY: clean
clean:  ## Remove .venv*, demo and caches
	rm -rf $(VENV) .venv-tf-* $(DEMO) build .coverage .mypy_cache .pytest_cache .ruff_cache *.egg-info
