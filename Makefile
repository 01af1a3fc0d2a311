# All commands for developers. Run `make` for a list.
#
# One target directory and one profile (dev) serve build, lint and test. `BELFRY_DATA` and `BELFRY_LISTEN` set the
# data folder and the address of `make run`; `BELFRY_PORT` is the first port of `make run-cluster`,
# and `STORE` its store.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

CARGO ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
BELFRY_DATA ?= data
BELFRY_LISTEN ?= 127.0.0.1:7070
BELFRY_PORT ?= 7170
STORE ?= postgres
BENCH ?= all

has = command -v $(1) >/dev/null 2>&1

.PHONY: help
help: ## List the targets
	@echo 'usage: make TARGET'
	@echo
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: cargo-there
cargo-there:
	@$(call has,$(CARGO)) || { \
	  echo 'error: `$(CARGO)` is not installed: install Rust 1.95 or newer from https://rustup.rs' >&2; exit 1; }

# The dashboard is built if npm is installed. Without npm, or with WEB=0, the server shows a plain page.
WEB ?= $(shell command -v npm >/dev/null 2>&1 && echo 1 || echo 0)

.PHONY: web-there
web-there:
	@$(call has,npm) || { \
	  echo 'error: `npm` is not installed: the dashboard needs Node.js 20.19 or newer (https://nodejs.org)' >&2; exit 1; }

# The installed packages are up to date as long as the lock file has not changed.
web/node_modules/.package-lock.json: web/package-lock.json
	cd web && npm ci --no-audit --no-fund
	@touch $@

.PHONY: web
web: web-there web/node_modules/.package-lock.json ## Build the dashboard into web/dist
	cd web && npm run build

# `schema.d.ts` is generated from `openapi.json` at every check.
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
run: build ## Start a server and a worker, run three sample jobs, keep running until Ctrl-C
	@scripts/run.sh $(TARGET)/debug/belfry "$(BELFRY_DATA)" "$(BELFRY_LISTEN)"

.PHONY: run-cluster
run-cluster: build ## Start three servers and two workers: make run-cluster, or make run-cluster STORE=raft
	@scripts/run-cluster.sh $(TARGET)/debug/belfry "$(BELFRY_DATA)-cluster$(if $(filter raft,$(STORE)),-raft)" "$(BELFRY_PORT)" $(STORE)

# The linters and the unit tests of the dashboard run first, because they are fast, and both halves at the same time,
# because each leaves cores idle. They also build the dashboard, which is embedded into the binary, so that the binary is
# built once. Then all tests of all crates run; the whole-system tests among them start that binary. The tests in a browser
# are last.
.PHONY: test
test: cargo-there ## Run all required checks: lint, then all tests
	@$(MAKE) --no-print-directory --jobs=2 lint-rust web-ready
	@scripts/postgresql.sh
	@scripts/pgbouncer.sh
	@scripts/container-engine.sh
	$(CARGO) build --locked --workspace --bins --tests
	@if $(call has,cargo-nextest); then \
	  $(CARGO) nextest run --locked --workspace --no-fail-fast; \
	else \
	  echo 'note: cargo-nextest is not installed, so `cargo test` runs the tests (slower, same tests);'; \
	  echo '      `cargo install --locked cargo-nextest` installs it'; \
	  $(CARGO) test --locked --workspace --no-fail-fast; \
	fi
	$(CARGO) test --locked --workspace --doc --quiet
	@if [ "$(WEB)" = 1 ]; then $(MAKE) --no-print-directory web-e2e BUILT=1; \
	  else echo 'note: npm is not installed: the dashboard is not tested'; fi

.PHONY: web-test
web-test: web-unit web-e2e ## Test the dashboard, in a browser if one is installed

.PHONY: web-unit
web-unit: web-there web/node_modules/.package-lock.json ## Run the unit tests of the dashboard
	cd web && npm test

# One after the other: each of them generates `schema.d.ts`.
.PHONY: web-ready
web-ready:
	@$(if $(filter 1,$(WEB)),MAKEFLAGS='$(filter-out -j% --jobserver%,$(MAKEFLAGS))' \
	  $(MAKE) --no-print-directory web-lint web-unit web/dist/index.html,:)

# `CHROMIUM` sets the browser if it is not found automatically. With `BUILT`, `make test` has already built the binary
# together with everything else; `build` would rebuild most of its dependencies with fewer features.
.PHONY: web-e2e
web-e2e: web-there web/dist/index.html $(if $(BUILT),,build) ## Test the dashboard in a browser
	@scripts/chromium.sh >/dev/null || exit 0; cd web && npm run e2e

.PHONY: web-scale
web-scale: cargo-there web ## Measure the dashboard with a million jobs: make web-scale JOBS=1000000
	$(CARGO) build --locked --release -p belfry
	@scripts/chromium.sh >/dev/null
	cd web && BELFRY=$(abspath $(TARGET))/release/belfry SCALE_JOBS=$(or $(JOBS),1000000) npm run e2e -- --workers=1 scale eventRate

.PHONY: web-lint
web-lint: web-there web/node_modules/.package-lock.json ## Check format, rules and types of the dashboard
	cd web && npm run lint && npm run typecheck

.PHONY: web-lint-if-npm
ifeq ($(WEB),1)
web-lint-if-npm: web-lint
else
web-lint-if-npm:
	@echo 'note: npm is not installed: the dashboard is not linted'
endif

.PHONY: lint
lint: web-lint-if-npm lint-rust ## Check formatting, clippy, dashboard, dependencies and licences

.PHONY: lint-rust
lint-rust: cargo-there
	@if $(CARGO) fmt --version >/dev/null 2>&1; then $(CARGO) fmt --all --check; \
	  else echo 'note: rustfmt is not installed: formatting is not checked (rustup component add rustfmt)'; fi
	@if $(CARGO) clippy --version >/dev/null 2>&1; then $(CARGO) clippy --locked --workspace --all-targets --quiet -- -D warnings; \
	  else echo 'note: clippy is not installed: its lints are not checked (rustup component add clippy)'; fi
	@if $(call has,cargo-deny); then $(CARGO) deny --locked check; \
	  else echo 'note: cargo-deny is not installed: advisories and licences are not checked (cargo install --locked cargo-deny)'; fi

.PHONY: fix
fix: cargo-there ## Format, apply clippy's fixes, regenerate pages and snapshots
	$(CARGO) clippy --workspace --all-targets --fix --allow-dirty --allow-staged --quiet
	$(CARGO) fmt --all
	BELFRY_UPDATE=1 $(CARGO) test --quiet --workspace --exclude belfry-worker --lib --tests -- pages:: checked_in the_picture_in_the_book

.PHONY: bench
bench: cargo-there ## Run benchmarks: make bench BENCH=noop ROUNDS=5 [default: all]
	$(CARGO) build --locked --release -p belfry -p belfry-bench
	$(TARGET)/release/belfry-bench $(BENCH) $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(RESULTS),--results $(RESULTS))

.PHONY: bench-micro
bench-micro: cargo-there ## Benchmark single engine decisions: make bench-micro BENCH=place
	$(CARGO) bench --locked -p belfry-engine --bench decisions -- $(BENCH)

.PHONY: bench-page
bench-page: cargo-there ## Generate docs/src/benchmarks.md from docs/benchmarks
	BELFRY_UPDATE=1 $(CARGO) test --locked --quiet -p belfry-bench page::

.PHONY: bench-peers
bench-peers: cargo-there ## Compare with other schedulers: make bench-peers ROUNDS=5, PEERS=belfry,bullmq, or LATENCY=1
	$(CARGO) build --locked --release -p belfry -p belfry-bench
	CARGO_TARGET_DIR=$(abspath $(TARGET)) python3 bench/peers/run.py $(if $(PEERS),--peers $(PEERS)) \
	  $(if $(ROUNDS),--rounds $(ROUNDS)) $(if $(JOBS),--jobs $(JOBS)) $(if $(LATENCY),--latency) $(if $(RESULTS),--json $(RESULTS))

# Commit and date of a run, stored with its results. `RESULTS=docs/results/simulator.json` of `make sim` and
# `RESULTS=docs/results` of `make chaos` store results, and `make results-page` generates their page. `make bench
# RESULTS=docs/benchmarks` stores figures, and `make bench-page` generates their page.
KEPT = BELFRY_COMMIT=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) BELFRY_DATE=$$(date -u +%F)

.PHONY: chaos
chaos: build ## Run fault injection tests on real processes: make chaos MINUTES=10, or SECONDS=45 SEED=4711
	@scripts/postgresql.sh
	@scripts/pgbouncer.sh
	CHAOS_KEEP=1 CHAOS_PROMOTIONS=$(or $(PROMOTIONS),50) CHAOS_KILLS=$(or $(KILLS),50) CHAOS_SECONDS=$(or $(SECONDS),$(shell expr $(or $(MINUTES),10) '*' 60)) \
	  $(if $(SEED),CHAOS_SEED=$(SEED)) $(if $(RESULTS),CHAOS_RESULTS=$(abspath $(RESULTS)) $(KEPT)) \
	  $(CARGO) test --locked -p belfry-tests --test it -- --nocapture --test-threads=1 chaos::

.PHONY: partitions
partitions: build ## Run network partition tests between leader and database: make partitions ROUNDS=20
	@scripts/postgresql.sh
	PARTITION_ROUNDS=$(or $(ROUNDS),20) $(CARGO) test --locked -p belfry-tests --test it -- \
	  --include-ignored --nocapture --test-threads=4 partition::

.PHONY: sim
sim: cargo-there ## Simulate whole clusters from seeds: make sim SEEDS=20000, or make sim MINUTES=10
	$(KEPT) $(CARGO) run --locked --release --quiet -p belfry-sim -- run \
	  $(if $(MINUTES),--minutes $(MINUTES),--seeds $(or $(SEEDS),2000)) $(if $(SEED),--seed $(SEED)) \
	  $(if $(RESULTS),--results $(RESULTS))

.PHONY: sim-mutations
sim-mutations: cargo-there ## Run mutation tests: the simulators must find every deliberate bug
	$(KEPT) $(CARGO) run --locked --quiet -p belfry-sim -- mutations $(if $(RESULTS),--results $(RESULTS)/mutations.json)
	$(KEPT) $(CARGO) run --locked --quiet -p belfry-node-sim -- mutations $(if $(RESULTS),--results $(RESULTS)/mutations-node.json)

.PHONY: node-sim
node-sim: cargo-there ## Simulate real servers and agents on a simulated network: make node-sim SEEDS=500 SEED=1
	$(CARGO) run --locked --quiet -p belfry-node-sim -- run --seeds $(or $(SEEDS),100) $(if $(SEED),--first $(SEED))

.PHONY: results-page
results-page: cargo-there ## Generate docs/src/test-results.md from docs/results
	BELFRY_UPDATE=1 $(CARGO) test --locked --quiet -p belfry-tests --test it -- pages::the_test_results_page

.PHONY: docs
docs: ## Build the book into target/book
	@$(call has,mdbook) || { \
	  echo 'error: mdbook is not installed: run `cargo install --locked mdbook`, or read the Markdown pages in docs/src' >&2; exit 1; }
	mdbook build docs
