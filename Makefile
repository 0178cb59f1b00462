# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
# `make apk` and `make test-android` want a JDK (17 or newer), Maven and npm beside.
# TORCH_BACKEND=cpu takes PyTorch's CPU build (a tenth of the size) where its index is in reach.
PYTHON ?= python3
TORCH_BACKEND ?=
BUNDLE ?= demo/bundle
APK_OPTIONS ?=
BIN := .venv/bin
UV := $(BIN)/uv pip install --quiet --python $(BIN)/python -c constraints.txt $(if $(TORCH_BACKEND),--torch-backend $(TORCH_BACKEND))

SDK := android_demo/build/sdk/complete
JARS := android_demo/build/jars

.PHONY: demo test slow apk test-android lint format bench clean

demo: .venv/installed
	$(BIN)/mtn-edge demo -o demo --force

test: .venv/installed # a process for each core, each on one thread: most tests keep a single thread busy
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile

slow: .venv/installed
	$(BIN)/pytest -m slow

apk: .venv/installed $(SDK) $(if $(filter demo/bundle,$(BUNDLE)),demo/bundle/manifest.json) # APK_OPTIONS=--split: one for each ABI too
	PYTHON=$(abspath $(BIN)/python) android_demo/tools/build_apk.sh $(BUNDLE) android_demo/build/out $(APK_OPTIONS)

test-android: .venv/installed $(SDK) $(JARS) # part of `make test` where $(SDK) and the jars are there
	OMP_NUM_THREADS=1 $(BIN)/pytest -n auto --dist loadfile tests/test_android_*.py

demo/bundle/manifest.json: | .venv/installed
	$(BIN)/mtn-edge demo -o demo --force

$(SDK): android_demo/tools/fetch_sdk.sh android_demo/suggester/pom.xml | .venv/installed
	PYTHON=$(abspath $(BIN)/python) $<

$(JARS): android_demo/suggester/pom.xml android_demo/keyboard/pom.xml $(SDK)
	mvn --batch-mode --quiet --file=android_demo/suggester/pom.xml test
	mvn --batch-mode --quiet --file=android_demo/keyboard/pom.xml test-compile
	touch $@

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
	rm -rf .venv build dist demo android_demo/build android_demo/*/target .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
