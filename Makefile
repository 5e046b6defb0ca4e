# A thin front for Meson. Everything is built below $(ROOT); `make BUILD=dir` builds elsewhere.
#
#   make            build                     make demo       see a slow directory become fast
#   make check      build and unit tests      make bench      the numbers of docs/BENCHMARKS.md
#   make test       everything                make install    [PREFIX=/usr/local] [DESTDIR=]
#   make format     clang-format in place     make clean

ROOT   ?= build
BUILD  ?= $(ROOT)/gcc
PREFIX ?= /usr/local

FOREBAY = $(abspath $(BUILD))/src/cli/forebay
# One build at a time in a build directory, whoever else is at work in this tree.
LOCKED  = mkdir -p $(BUILD) && flock $(BUILD)/.lock

all:
	@tools/deps --check build
	@$(LOCKED) sh -ec '[ -f $(BUILD)/build.ninja ] || CC=gcc meson setup $(BUILD); ninja -C $(BUILD)'

# Tests mostly wait: more of them than there are processors.
check: all
	@meson test -C $(BUILD) --no-rebuild --suite unit --print-errorlogs --logbase checklog \
	    --num-processes $$((2 * $$(nproc) + 1))

test:
	@tools/deps test
	@tools/test --root $(ROOT)

demo:
	@tools/deps build
	@$(MAKE) --no-print-directory all
	@FOREBAY=$(FOREBAY) tools/demo

bench:
	@tools/deps bench
	@$(MAKE) --no-print-directory all
	@FOREBAY=$(FOREBAY) FB_BUILD_DIR=$(abspath $(BUILD)) bench/run

install: all
	@$(LOCKED) meson setup --reconfigure $(BUILD) -Dprefix=$(PREFIX) >/dev/null
	@$(LOCKED) ninja -C $(BUILD)
	@DESTDIR=$(if $(DESTDIR),$(abspath $(DESTDIR))) meson install -C $(BUILD) --no-rebuild

format:
	@find src include tests bench -name '*.[ch]' -print0 | xargs -0r clang-format -i

clean:
	rm -rf $(ROOT) $(BUILD)

.PHONY: all check test demo bench install format clean
