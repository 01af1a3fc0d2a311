# Everything a developer types. `make` alone lists it.
#
# One target directory and one profile (dev) serve build, lint and test. `BELFRY_DATA` and
# `BELFRY_LISTEN` say where `make run` keeps its data and listens; `BELFRY_PORT` is the first port of
# `make run-cluster`.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BELFRY_DATA ?= data
BELFRY_LISTEN ?= 127.0.0.1:7070
BELFRY_PORT ?= 7170
BENCH ?= all

has = command -v $(1) >/dev/null 2>&1

.PHONY: help
help: ## List the targets
	@echo 'usage: make TARGET'
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: cargo-there
cargo-there:
	@$(call has,$(CARGO)) || { \
	  echo 'error: `$(CARGO)` is not there: install Rust 1.95 or newer from https://rustup.rs' >&2; exit 1; }

# The dashboard is built where npm is there; without it, or with WEB=0, the server shows a plain page.
WEB ?= $(shell command -v npm >/dev/null 2>&1 && echo 1 || echo 0)

.PHONY: web-there
web-there:
	@$(call has,npm) || { \
	  echo 'error: `npm` is not there: the dashboard needs Node.js 20.19 or newer (https://nodejs.org)' >&2; exit 1; }

# What was installed is right as long as the lock file has not changed since.
web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

.PHONY: web
web: web-there web/node_modules/.package-lock.json ## Build the dashboard into web/dist
	cd web && npm run build

# `schema.d.ts` is made from `openapi.json`, at every check anew.
web/dist/index.html: $(shell find web/src web/scripts web/index.html web/package.json web/vite.config.ts docs/openapi.json -type f -not -name schema.d.ts 2>/dev/null)
	$(MAKE) --no-print-directory web

.PHONY: web-if-npm
ifeq ($(WEB),1)
web-if-npm: web/dist/index.html
else
web-if-npm:
	@test -f web/dist/index.html || echo 'note: npm is not installed: the server will have no dashboard (`make web` builds it)'
endif

.PHONY: build
build: cargo-there web-if-npm ## Build the binary: target/debug/belfry
	$(CARGO) build --locked -p belfry

.PHONY: run
run: build ## Start a server and a worker, run three sample jobs, stay until Ctrl-C
	@scripts/run.sh $(TARGET)/debug/belfry "$(BELFRY_DATA)" "$(BELFRY_LISTEN)"

.PHONY: run-cluster
run-cluster: build ## Start three servers on one PostgreSQL and two workers, stay until Ctrl-C
	@scripts/run-cluster.sh $(TARGET)/debug/belfry "$(BELFRY_DATA)-cluster" "$(BELFRY_PORT)"

# The linters first: they are quick to say what is wrong. Then the dashboard, which is built into the binary, so
# that this is built once. Then every test of every crate; the whole-system tests among them start that binary.
.PHONY: test
test: lint web-if-npm ## Everything that must pass: lint, then all tests
	@scripts/postgresql.sh
	@scripts/pgbouncer.sh
	$(CARGO) build --locked --workspace --bins --tests
	@if $(call has,cargo-nextest); then \
	  $(CARGO) nextest run --locked --workspace --no-fail-fast; \
	else \
	  echo 'note: cargo-nextest is not installed, so `cargo test` runs the tests (slower, same tests);'; \
	  echo '      `cargo install --locked cargo-nextest` installs it'; \
	  $(CARGO) test --locked --workspace --no-fail-fast; \
	fi
	$(CARGO) test --locked --workspace --doc --quiet
	@if [ "$(WEB)" = 1 ]; then $(MAKE) --no-print-directory web-test BUILT=1; \
	  else echo 'note: npm is not installed: the dashboard is not tested'; fi

# In a browser of this machine: `CHROMIUM` names one that is not found by itself. `make test` has built the binary
# together with everything else. `build` would build most of its dependencies again, with fewer features.
.PHONY: web-test
web-test: web-there web/dist/index.html $(if $(BUILT),,build) ## Test the dashboard, in a browser where there is one
	cd web && npm test
	@scripts/chromium.sh >/dev/null || exit 0; cd web && npm run e2e

.PHONY: web-scale
web-scale: cargo-there web ## How quick the dashboard is, over a million jobs: make web-scale JOBS=1000000
	$(CARGO) build --locked --release -p belfry
	@scripts/chromium.sh >/dev/null
	cd web && BELFRY=$(abspath $(TARGET))/release/belfry SCALE_JOBS=$(or $(JOBS),1000000) npm run e2e -- --workers=1 scale flood

.PHONY: web-lint
web-lint: web-there web/node_modules/.package-lock.json ## Format, rules and types of the dashboard
	cd web && npm run lint && npm run typecheck

.PHONY: web-lint-if-npm
ifeq ($(WEB),1)
web-lint-if-npm: web-lint
else
web-lint-if-npm:
	@echo 'note: npm is not installed: the dashboard is not linted'
endif

.PHONY: lint
lint: cargo-there web-lint-if-npm ## Formatting, clippy, dashboard, dependencies, licences; the house rules are tests
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	  else echo 'note: rustfmt is not installed: formatting is not checked (rustup component add rustfmt)'; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings; \
	  else echo 'note: clippy is not installed: its lints are not checked (rustup component add clippy)'; fi
	@if $(call has,cargo-deny); then $(CARGO) deny --locked check; \
	  else echo 'note: cargo-deny is not installed: advisories and licences are not checked (cargo install --locked cargo-deny)'; fi

.PHONY: fix
fix: cargo-there ## Format, take what clippy can mend, write generated pages and snapshots again
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged --quiet
	$(CARGO) fmt --all
	BELFRY_UPDATE=1 $(CARGO) test --quiet --workspace --lib --tests -- pages:: checked_in the_picture_in_the_book

.PHONY: bench
bench: cargo-there ## Measure: make bench BENCH=noop ROUNDS=5 (default: all of them)
	$(CARGO) build --locked --release -p belfry -p belfry-bench
	$(TARGET)/release/belfry-bench $(BENCH) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(RESULTS),--results $(RESULTS))

.PHONY: bench-micro
bench-micro: cargo-there ## Measure single decisions of the engine: make bench-micro BENCH=place
	$(CARGO) bench --locked -p belfry-engine --bench decisions -- $(BENCH)

.PHONY: bench-page
bench-page: cargo-there ## Write docs/src/benchmarks.md from what is kept in docs/benchmarks
	BELFRY_UPDATE=1 $(CARGO) test --locked --quiet -p belfry-bench page::

.PHONY: bench-peers
bench-peers: cargo-there ## Measure beside other schedulers: make bench-peers ROUNDS=5, PEERS=belfry,bullmq, or LATENCY=1
	$(CARGO) build --locked --release -p belfry -p belfry-bench
	CARGO_TARGET_DIR=$(abspath $(TARGET)) python3 bench/peers/run.py $(if $(PEERS),--peers $(PEERS)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(LATENCY),--latency) $(if $(RESULTS),--json $(RESULTS))

# What a run says of itself where its results are kept (`RESULTS=docs/results/simulator.json` of
# `make sim`, `RESULTS=docs/results` of `make chaos`); `make results-page` shows them. `make bench
# RESULTS=docs/benchmarks` keeps figures, and `make bench-page` shows them.
KEPT = BELFRY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) BELFRY_DATE=$$(date -u +%F)

.PHONY: chaos
chaos: build ## Storms of faults over real processes: make chaos MINUTES=10, or SECONDS=45 SEED=4711
	@scripts/postgresql.sh
	@scripts/pgbouncer.sh
	CHAOS_KEEP=1 CHAOS_PROMOTIONS=$(or $(PROMOTIONS),50) CHAOS_KILLS=$(or $(KILLS),50) CHAOS_SECONDS=$(or $(SECONDS),$(shell expr $(or $(MINUTES),10) '*' 60)) \
	  $(if $(SEED),CHAOS_SEED=$(SEED)) $(if $(RESULTS),CHAOS_RESULTS=$(abspath $(RESULTS)) $(KEPT)) \
	  $(CARGO) test --locked -p belfry-tests --test it -- --nocapture --test-threads=1 chaos::

.PHONY: partitions
partitions: build ## Cut the leader of two servers from its database in every way: make partitions ROUNDS=20
	@scripts/postgresql.sh
	PARTITION_ROUNDS=$(or $(ROUNDS),20) $(CARGO) test --locked -p belfry-tests --test it -- \
	  --include-ignored --nocapture --test-threads=4 partition::

.PHONY: sim
sim: cargo-there ## Play whole clusters from seeds: make sim SEEDS=20000, or make sim MINUTES=10
	$(KEPT) $(CARGO) run --locked --release --quiet -p belfry-sim -- run \
	  $(if $(MINUTES),--minutes $(MINUTES),--seeds $(or $(SEEDS),2000)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(RESULTS),--results $(RESULTS))

.PHONY: sim-mutations
sim-mutations: cargo-there ## Play worlds with deliberate bugs, and see each of them found
	$(KEPT) $(CARGO) run --locked --quiet -p belfry-sim -- mutations $(if $(RESULTS),--results $(RESULTS)/mutations.json)
	$(KEPT) $(CARGO) run --locked --quiet -p belfry-node-sim -- mutations $(if $(RESULTS),--results $(RESULTS)/mutations-node.json)

.PHONY: node-sim
node-sim: cargo-there ## Play real servers and agents over a simulated network: make node-sim SEEDS=500 SEED=1
	$(CARGO) run --locked --quiet -p belfry-node-sim -- run --seeds $(or $(SEEDS),100) $(if $(SEED),--first $(SEED))

.PHONY: results-page
results-page: cargo-there ## Write docs/src/test-results.md from what is kept in docs/results
	BELFRY_UPDATE=1 $(CARGO) test --locked --quiet -p belfry-tests --test it -- pages::the_test_results_page

.PHONY: docs
docs: ## Build the book into target/book
	@$(call has,mdbook) || { \
	  echo 'error: mdbook is not installed: `cargo install --locked mdbook`; the pages read well as they are in docs/src' >&2; exit 1; }
	mdbook build docs
