# make demo         label a sample image; opens napari where there is a screen
# make check        checks, and the tests that need no window
# make test         checks, some tests of the app with the other Qt binding, then all tests
# make test-pyside6 some tests of the app with PySide6; test-pyqt5, test-pyqt6: with these
# make test-exhaustive  the cases of laws that make test leaves out
# make test-next    all tests of the app with the newest napari, pre-releases included
# make fuzz         files with random damage, for ten minutes; MINUTES=60 for an hour
# make lint         checks only
# make format       put the code in form
# make docs         the site of the documentation, in docs/_build/html
# make wheelhouse   all that a machine without a network needs to install this

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The Qt binding of .venv, with which all tests run; some of the app run with the other one, too.
BINDING := pyqt6
OTHER := $(firstword $(filter-out $(BINDING),pyside6 pyqt6))

IS_NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for name in python3.11 python3.12 python3.13 python3 python; do \
	$$name -c '$(IS_NEW_ENOUGH)' 2>/dev/null && echo $$name && break; done)
BIN := .venv/bin
SCREEN = $$(command -v xvfb-run >/dev/null && echo 'xvfb-run -a -s "-screen 0 1400x1000x24"')
INSTALL := -m pip install -qq --disable-pip-version-check --no-compile

# A newer pip works faster, and compiling goes faster afterwards, on every core. Some packages
# carry files that do not compile.
COMPILE := $(BIN)/python -m compileall -q -j 0 .venv/lib >/dev/null || true

# Software rendering gives the same picture on every machine.
export LIBGL_ALWAYS_SOFTWARE := 1

# What many processes import is compiled once, tests and their assertions above all.
export PYTHONDONTWRITEBYTECODE :=

# A few tests at a time, each on one core: threads that wait for one another's cores only spin.
# A worker without work takes some of another's; tests/conftest.py says how many there are.
PYTEST := -m pytest -n auto --maxprocesses 4 --dist worksteal

.PHONY: help demo check core test test-exhaustive test-pyqt5 test-pyqt6 test-pyside6 test-next fuzz lint format docs wheelhouse system
help:
	@sed -n 's/^# //p' $(firstword $(MAKEFILE_LIST)) | head -11

demo: .venv/installed
	@$(BIN)/napari-saf demo -o demo

# mypy takes one core only.
check: .venv/installed
	@$(MAKE) --no-print-directory -j2 lint core

core: .venv/installed
	@OMP_NUM_THREADS=1 $(BIN)/python $(PYTEST) --ignore tests/gui -m "not slow and not exhaustive"

test: .venv/installed
	@$(MAKE) --no-print-directory -j2 lint test-$(OTHER)
	@OMP_NUM_THREADS=1 eval "$(SCREEN)" $(BIN)/python $(PYTEST) --durations 10 --durations-min 1

test-exhaustive: .venv/installed
	@OMP_NUM_THREADS=1 eval "$(SCREEN)" $(BIN)/python $(PYTEST) -m exhaustive

# The bindings differ in enumerations, signals and fonts: all docks, and two ways through them. In
# one process, beside the checks of the code: to start a worker takes as long as some tests.
SMOKE := $(addprefix tests/gui/,test_all_docks.py test_class_keys.py) \
	$(addprefix tests/gui/walks/,test_walk_2_strokes.py test_walk_6_export.py)
test-pyqt5 test-pyqt6 test-pyside6: test-%: .venv-%/installed
	@QT_API=$* PYTEST_QT_API=$* OMP_NUM_THREADS=1 eval "$(SCREEN)" .venv-$*/bin/python -m pytest $(SMOKE)

test-next: .venv-next/installed
	@QT_API=pyqt6 PYTEST_QT_API=pyqt6 OMP_NUM_THREADS=1 eval "$(SCREEN)" .venv-next/bin/python $(PYTEST) tests/gui

# What failed is kept in .hypothesis and tried first in the next run.
MINUTES := 10
fuzz: .venv/installed
	@end=$$((SECONDS + 60 * $(MINUTES))); while ((SECONDS < end)); do OMP_NUM_THREADS=1 $(BIN)/python \
		$(PYTEST) -q -m hypothesis --hypothesis-profile fuzz tests/io tests/project; done

lint: .venv/installed
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/npe2 validate napari-saf

format: .venv/installed
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

docs: .venv/installed-docs
	@$(BIN)/python -m sphinx --fail-on-warning --keep-going --quiet -b html docs docs/_build/html
	@echo "docs/_build/html/index.html"

# For this system and Python. There: pip install --no-index --find-links wheelhouse 'napari-saf[all]'
wheelhouse: .venv/installed
	@$(BIN)/python -m pip wheel -qq --disable-pip-version-check -c constraints.txt -w wheelhouse '.[all]'
	@ls wheelhouse | wc -l | xargs printf '%s wheels in wheelhouse/: copy the folder, then there\n'
	@echo "  pip install --no-index --find-links wheelhouse 'napari-saf[all]'"

system:
	@.ci/system-packages $(PYTHON)

.venv/installed: pyproject.toml constraints.txt | system
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed" >&2; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@echo "installing napari-saf into .venv: some minutes"
	@$(BIN)/python $(INSTALL) --upgrade pip || true
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[$(BINDING),dev]'
	@$(COMPILE)
	@touch $@

.venv/installed-docs: .venv/installed
	@echo "installing what makes the documentation into .venv"
	@$(BIN)/python $(INSTALL) -c constraints.txt -e '.[docs]'
	@touch $@

# Only the binding, or a napari, is installed here; everything else is taken from .venv.
PACKAGES_next := --upgrade --pre napari
PACKAGES_pyqt5 := pyqt5 'napari<0.10'
.venv-%/installed: .venv/installed
	@test -x .venv-$*/bin/python || $(BIN)/python -m venv .venv-$*
	@echo "installing $* into .venv-$*"
	@packages='import sysconfig; print(sysconfig.get_path("purelib"))'; \
		here=$$($(BIN)/python -c "$$packages"); there=$$(.venv-$*/bin/python -c "$$packages"); \
		echo "import site; site.addsitedir('$$here')" > "$$there/base.pth"
	@sed '/^napari==/d' constraints.txt > .venv-$*/constraints.txt
	@.venv-$*/bin/python $(INSTALL) -c .venv-$*/constraints.txt $(or $(PACKAGES_$*),$*)
	@touch $@
