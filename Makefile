# Every target does its own set-up: Debian packages (when root and something is missing), a virtual environment in
# $(VENV), the package built and installed there. Nothing is written outside of the tree but Debian packages.

PYTHON ?= python3
VENV ?= .venv
BUILD ?= build
JOBS ?= $(shell nproc)
PYTEST ?=
bin = $(VENV)/bin

# What the package needs to be built, and what the tests need beside it.
SYSTEM = g++ cmake ninja-build make python3-venv python3-dev
SYSTEM_TESTS = ccache doctest-dev libibverbs-dev linux-source-6.12 xz-utils
SYSTEM_BENCH = valgrind ucx-utils mpich
TOOLS = "scikit-build-core>=0.10" "pybind11>=3.0" "click>=8.1" "rich>=13"
TOOLS_TESTS = ruff==0.17.6 mypy==2.4.1 clang-format==19.1.7 hypothesis numpy "pytest>=8" pytest-timeout scapy
CXX_FILES = $(wildcard csrc/*/*.h csrc/*/*.cc csrc/*/*/*.h csrc/*/*/*.cc csrc/*/*/*/*.h csrc/*/*/*/*.cc \
              tests/cpp/*.cc tests/cpp/*.h bench/*.cc bench/*.h bench/*/*.cc)
launcher = $(if $(shell command -v ccache),-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
configure = cmake -G Ninja -DUSERDMA_WERROR=ON $(launcher) -DPython_EXECUTABLE=$(abspath $(bin))/python
# Build folders share what they compile alike.
export CCACHE_NOHASHDIR = 1
pip = $(bin)/python -m pip --disable-pip-version-check -q

.PHONY: all demo test test-guest test-guest-full ctest pytest slow lint format asan build-asan tsan build-tsan bench wheel install setup setup-tests system clean
all: install

demo: install
	$(bin)/userdma demo $(FILE)

test: lint ctest pytest
	@$(bin)/python tests/guest/image.py

# In virtual machines with Debian's kernels (tests/guest/README.md): what is marked each_kernel on all, the rest on 6.12.
test-guest: setup-tests install
	$(bin)/python -m pytest -p no:cacheprovider --durations 10 tests/guest $(PYTEST)

test-guest-full: setup-tests install
	$(bin)/python -m pytest -p no:cacheprovider --durations 10 --full tests/guest $(PYTEST)

# The C++ tests.
ctest: setup-tests
	$(configure) -DCMAKE_BUILD_TYPE=Release -S . -B $(BUILD)/tests -DUSERDMA_PYTHON=OFF -DUSERDMA_TESTS=ON
	cmake --build $(BUILD)/tests -j $(JOBS)
	ctest --test-dir $(BUILD)/tests --output-on-failure -j $(JOBS)

# The Python tests, on the installed package; `make slow` runs those that take minutes.
pytest: setup-tests install
	$(bin)/python -m pytest -m "not slow" $(PYTEST)

slow: setup-tests install
	$(bin)/python -m pytest -m slow --timeout 3600 $(PYTEST)

lint: setup-tests
	$(bin)/ruff check .
	$(bin)/ruff format --check .
	$(bin)/mypy
	$(bin)/mypy tests/typing/program.py
	cd tests/guest && $(abspath $(bin))/mypy --strict image.py guest.py run.py conftest.py
	$(bin)/clang-format --dry-run --Werror $(CXX_FILES)

format: setup-tests
	$(bin)/ruff check --fix .
	$(bin)/ruff format .
	$(bin)/clang-format -i $(CXX_FILES)

# A runtime of the sanitizer has to be in the process before the interpreter is; its C++ library too, whose exceptions
# it watches. What it reports goes to a file: it ends the process in which pytest holds the output. Leaks of the
# interpreter itself are not ours: the C++ tests look for leaks, the Python tests do not.
# The Python tests of the core: those that start programs and command lines say nothing more of it.
CORE = $(addprefix tests/python/test_,seed_qp.py seed_region.py threads.py)
CORE_MORE = $(addprefix tests/python/test_,packets.py page_table.py soft_firmware.py transport_properties.py)
# Of the pairs of families, the mixed one.
mixed = USERDMA_NICS=soft:bnxt,soft:mlx5
preload = LD_PRELOAD="$(shell g++ -print-file-name=$(1).so) $(shell g++ -print-file-name=libstdc++.so)"

build-asan: setup-tests
	$(configure) -S . -B $(BUILD)/asan -DUSERDMA_TESTS=ON -DUSERDMA_SANITIZE=address,undefined
	cmake --build $(BUILD)/asan -j $(JOBS)

asan: build-asan
	UBSAN_OPTIONS=print_stacktrace=1 ctest --test-dir $(BUILD)/asan --output-on-failure -j $(JOBS)
	rm -f $(BUILD)/asan/report.*
	$(call preload,libasan) $(mixed) ASAN_OPTIONS="detect_leaks=0 log_path=$(abspath $(BUILD))/asan/report" \
	  UBSAN_OPTIONS="print_stacktrace=1 log_path=$(abspath $(BUILD))/asan/report" PYTHONMALLOC=malloc \
	  PYTHONPATH=$(abspath $(BUILD))/asan/python USERDMA_SANITIZED=address \
	  $(bin)/python -m pytest -p no:cacheprovider -m "not slow and not no_sanitizer" $(CORE) $(CORE_MORE) $(PYTEST) \
	  || { cat $(BUILD)/asan/report.* 2>/dev/null; false; }

# ThreadSanitizer's memory map needs addresses that are not spread too widely: setarch -R.
build-tsan: setup-tests
	$(configure) -S . -B $(BUILD)/tsan -DUSERDMA_TESTS=ON -DUSERDMA_SANITIZE=thread
	cmake --build $(BUILD)/tsan -j $(JOBS)

tsan_python = rm -f $(BUILD)/tsan/report.*; $(call preload,libtsan) $(mixed) TSAN_OPTIONS="halt_on_error=1 \
  second_deadlock_stack=1 suppressions=$(CURDIR)/tests/tsan.supp log_path=$(abspath $(BUILD))/tsan/report" \
  PYTHONPATH=$(abspath $(BUILD))/tsan/python USERDMA_SANITIZED=thread \
  setarch -R $(bin)/python -m pytest -p no:cacheprovider -m "not slow and not no_sanitizer" $(CORE) $(PYTEST)

# The runtime ends the process with 66 when it warns of anything, and also, once in a while, when it fails itself: where
# many threads begin at once, GCC 12's may get no memory for what it keeps of them. Then there is no warning, and the
# tests run once more.
tsan: build-tsan
	setarch -R ctest --test-dir $(BUILD)/tsan --output-on-failure -j $(JOBS)
	$(tsan_python) || { status=$$?; cat $(BUILD)/tsan/report.* 2>/dev/null; \
	  [ $$status = 66 ] && ! grep -qs "WARNING: ThreadSanitizer" $(BUILD)/tsan/report.* && \
	  echo "ThreadSanitizer's runtime failed, and warned of nothing: once more" && { $(tsan_python); }; }

bench: setup-tests install
	@$(MAKE) --no-print-directory system WANTED="$(SYSTEM_BENCH)"
	$(pip) install mpi4py
	$(configure) -DCMAKE_BUILD_TYPE=RelWithDebInfo -S . -B $(BUILD)/bench -DUSERDMA_BENCH=ON
	cmake --build $(BUILD)/bench -j $(JOBS)
	PYTHONPATH=$(BUILD)/bench/python:$(BUILD)/bench/bench $(bin)/python bench/run.py --build $(BUILD)/bench $(BENCH)

wheel: setup
	$(pip) wheel . --no-deps --no-build-isolation -w dist -Cbuild-dir=$(BUILD)/package

# The package itself, built again as far as something changed.
install: setup
	@test -e $(BUILD)/package || echo "Building the package: a minute or two on two cores"
	$(pip) install . --no-deps --no-build-isolation -Cbuild-dir=$(BUILD)/package -Ccmake.define.USERDMA_WERROR=ON \
	  $(if $(launcher),-Ccmake.define.CMAKE_CXX_COMPILER_LAUNCHER=ccache)

setup: system $(VENV)/ready

setup-tests: setup
	@$(MAKE) --no-print-directory system WANTED="$(SYSTEM_TESTS)"
	@$(MAKE) --no-print-directory $(VENV)/ready-tests

$(VENV)/ready: pyproject.toml Makefile
	test -x $(bin)/python || $(PYTHON) -m venv $(VENV)
	$(pip) install $(TOOLS)
	touch $@

$(VENV)/ready-tests: pyproject.toml Makefile
	$(pip) install $(TOOLS_TESTS)
	touch $@

WANTED = $(SYSTEM)
system:
	@missing=""; for p in $(WANTED); do \
	  dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q '^install ok installed' || missing="$$missing $$p"; done; \
	if [ -z "$$missing" ]; then exit 0; \
	elif [ "$$(id -u)" = 0 ]; then echo "Installing$$missing"; apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	else echo "Debian packages missing:$$missing (as root: apt-get install$$missing)"; fi

clean:
	rm -rf $(BUILD) $(VENV) dist
