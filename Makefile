# A thin front of CMake. `make run` and `make test` install what they need first (Debian, as root or with sudo).
# CUDA: which device code; auto (by what the machine has), native, all, off, or targets such as 90a,120. It holds for this build
# until another is given. packaging/cuda.sh says how auto chooses.
CUDA =
BUILD ?= build
JOBS ?= $(shell nproc)
PICTURE ?= packaging/examples/cat.png

.PHONY: build run check test sanitize bench fuzz docs windows archive format clean \
	install-obs uninstall-obs install-comfy uninstall-comfy

build:
	@sh packaging/setup.sh build
	@sh packaging/cuda.sh install $(BUILD) "$(CUDA)"
	cmake -S . -B $(BUILD) -G Ninja $(if $(CUDA),-DDAVY_CUDA_TARGETS="$(CUDA)")
	cmake --build $(BUILD) -j $(JOBS)

run: build
	$(BUILD)/davy upscale $(PICTURE) -o $(BUILD)/upscaled.png
	@echo "the picture, four times as large: $(CURDIR)/$(BUILD)/upscaled.png"

# Before each commit: a part of all tests, about three minutes on two cores. docs/tests.md says which.
check: build
	@ctest --test-dir $(BUILD) -L '^check$$' -j $(JOBS) --timeout 300 --output-on-failure

test:
	@sh packaging/setup.sh test
	@$(MAKE) --no-print-directory build
	@sh tests/run.sh $(BUILD)

sanitize:
	@sh packaging/setup.sh test
	@sh tests/sanitize.sh

bench: build
	$(BUILD)/davy bench --save $(BUILD)/bench.jsonl
	$(BUILD)/kcheck --bench --csv $(BUILD)/kernels.csv

FUZZ_SECONDS ?= 30
fuzz:
	@sh packaging/setup.sh test
	@sh tests/fuzz/run.sh $(FUZZ_SECONDS)

# The reference of abi/ as HTML.
docs:
	@sh packaging/setup.sh docs
	@mkdir -p $(BUILD)/docs
	@DAVY_DOCS=$(BUILD)/docs doxygen docs/Doxyfile
	@echo "the reference: $(BUILD)/docs/index.html"

windows:
	@sh packaging/setup.sh test
	@sh packaging/windows/build.sh build-windows "$(CUDA)"

archive:
	@sh packaging/setup.sh test
	@sh packaging/archive.sh build-archive "$(CUDA)"

# For this user; OBS=system: for all (as root).
OBS ?= user
install-obs: build
	@sh packaging/install-obs.sh install $(BUILD) $(OBS)
uninstall-obs:
	@sh packaging/install-obs.sh uninstall $(BUILD) $(OBS)

# DIR: a ComfyUI
install-comfy: build
	@sh packaging/install-comfy.sh install $(BUILD) "$(DIR)"
uninstall-comfy:
	@sh packaging/install-comfy.sh uninstall $(BUILD) "$(DIR)"

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

clean:
	rm -rf $(BUILD) build-*
