# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
# TORCH_BACKEND=cpu takes PyTorch's CPU build (a tenth of the size) where its index is in reach.
PYTHON ?= python3
TORCH_BACKEND ?=
BIN := .venv/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND))

.PHONY: demo test slow lint format bench clean

demo: .venv/installed
	$(BIN)/mtn-edge demo -o demo --force

test: .venv/installed # a process for each core, each on one thread: most tests keep a single thread busy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

slow: .venv/installed
	$(BIN)/pytest -m slow

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed
	$(UV) -e '.[train]' --group dev --group bench
	for file in benchmarks/*.py; do $(BIN)/python $$file || exit 1; done

.venv/installed: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt uv
	$(UV) -e '.[train,sign]' --group dev
	touch $@

clean:
	rm -rf .venv build dist demo .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
