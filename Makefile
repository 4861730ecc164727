# make run      set up, open the workbench and run a first example (without a display: in the terminal)
# make test     set up, then check style and types and run all tests
# make lint     style and types only
# make gallery  pictures of every view, in GALLERY_DIR (build/gallery)
# make bench    what is timed, one script after another
# make clean    remove what was built here, except the environment
# make distclean  remove the environment too

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SHELL := /bin/bash
SOURCES := backend app native_prism/boundscope_prism resources scripts tests

# Window tests get a screen of their own where Xvfb is installed, and Qt's offscreen platform elsewhere.
ifneq ($(shell command -v xvfb-run 2>/dev/null),)
SCREEN := env -u WAYLAND_DISPLAY xvfb-run -a -s "-screen 0 1920x1200x24"
else
SCREEN := env QT_QPA_PLATFORM=offscreen
endif

.DEFAULT_GOAL := help
.PHONY: help setup run test lint gallery bench clean distclean

help:
	@sed -n '/^# make/s/^# //p' Makefile

setup:
	@$(PYTHON) scripts/set_up.py --venv $(VENV) --quiet

run: setup
	@scripts/first_run.sh $(BIN)/boundscope

lint: setup
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/mypy backend/boundscope app/boundscope_app native_prism/boundscope_prism resources

test: lint
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(SCREEN) $(BIN)/python -m pytest $(PYTEST_ARGS)

gallery: setup
	$(SCREEN) $(BIN)/python tests/app/gallery.py "$${GALLERY_DIR:-build/gallery}"

bench: setup
	@set -e; shopt -s nullglob; for script in tests/benchmarks/*.py; do \
	  echo "== $$script"; $(BIN)/python "$$script"; done

clean:
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find $(SOURCES) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean
	rm -rf $(VENV)
