# The module's own tools are pinned here rather than in go.mod, so that they reach
# no user's dependency graph.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
FUZZTIME    ?= 30s
DURATION    ?= 10m

# What needs more than the core module may depend on is a module of its own. go.work lists
# all, and says which are not published.
NESTED      := $(addsuffix /,$(shell sed -n 's,^\t\(\./[^ ]*\).*,\1,p' go.work))
PUBLISHED   := . $(shell sed -n 's,^\t\(\./[^ ]*\)$$,\1,p' go.work)
comma := ,
DURABLE     := $(filter ./durable/% ./examples/integrations/%,$(NESTED))

# The last release of Go and the one before.
RELEASES    := go1.26.8 go1.27.0

# What no test runs on. A quarter of them in CI, and all of them each night.
SYSTEMS     := windows/amd64 windows/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64 \
	linux/386 linux/arm linux/arm64 linux/riscv64 js/wasm wasip1/wasm
SOME        := windows/amd64 linux/386 js/wasm

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## /{printf "%-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile everything
	go build ./... ./examples/...

# Fewer seeds and rounds than test-long has; each promise has a test here, too.
.PHONY: test
test: ## run the tests of the core module and the examples in their short form, with the race detector: two minutes
	go test -race -short ./... ./timingwheel/tests ./examples/...
	go test -race -short -tags tickwheel_pool -run 'Shard|Processor|GOMAXPROCS|Stress' ./timingwheel ./timingwheel/internal/engine # without the processor's number

.PHONY: test-long
test-long: ## run all tests of the core module and the examples at length, with the race detector
	go test -race -timeout 30m ./... ./timingwheel/tests ./examples/...

# Where an int has 32 bits, and 64-bit atomics have to be aligned. No race detector there.
.PHONY: test-386
test-386: ## run the short tests of the library's packages with 32 bits
	GOARCH=386 CGO_ENABLED=0 go test -short ./bucket ./delayqueue ./internal/... ./purgatory ./timingwheel/... ./timingwheel/tests

.PHONY: test-nested
test-nested: missing ## run all tests of the nested modules but the examples, timingwheel/tests, the benchmarks and durable, with the race detector
	@set -e; for module in $(filter-out ./benchmarks/ ./examples/ ./timingwheel/tests/ $(DURABLE),$(NESTED)); do (set -x; cd $$module; go test -race ./...); done
	cd checks && go test -count 1 ./docs # the go command does not know that it reads what is not in its module

# One package at a time: each starts servers, and they share the processors with the tests.
# The tests of a package wait most of their time, so three run at once on two processors, too.
# What harms them waits most of its time, so it runs beside the rest, and saves five minutes.
DURABLE_TESTS := $(DURABLE:%=test-in-%)
.PHONY: test-durable $(DURABLE_TESTS)
test-durable: missing ## run all tests of durable jobs, on real servers, with the race detector
	$(MAKE) --no-print-directory test-in-./durable/
	$(MAKE) --no-print-directory -j2 -Otarget test-in-./durable/trials/ $(filter-out %/durable/ %/trials/,$(DURABLE_TESTS))
	cd durable/trials && go test ./protocol # which runs nothing with the race detector: it has one goroutine

$(DURABLE_TESTS): test-in-%:
	cd $* && go test -race -p 1 -parallel 3 -timeout 20m ./...

# GOWORK=off: with the testify that the core itself asks for.
.PHONY: test-releases
test-releases: ## run the short tests of the core, the examples and timingwheel/prometheus with both releases of Go
	@set -e; for go in $(RELEASES); do export GOTOOLCHAIN=$$go; \
		(set -x; go build -ldflags=-checklinkname=1 -o /dev/null ./examples/quickstart; GOWORK=off go test -short ./...; go test -short ./timingwheel/tests ./examples/...; cd timingwheel/prometheus; go test ./...); done

# go vet compiles what is imported, and checks the types of the rest, tests included.
.PHONY: cross cross-some
cross: ## build and vet the published modules and the examples, tests included, for all other systems
	@set -e; for system in $(SYSTEMS); do export GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0; \
		for module in $(PUBLISHED) ./examples; do (echo "$$system $$module"; cd $$module; go build ./...; go vet ./...); done; done

cross-some: ## the same for three of them
	$(MAKE) cross SYSTEMS="$(SOME)"

# VERSION is that of the next release; without it, the one that the modules ask of each other.
.PHONY: release-check release tidy
release-check: ## publish all modules into a temporary folder, and get, build and run them as a stranger does
	cd checks && go run ./release -version "$(VERSION)" check

release: ## the same, and prepare the checkout for VERSION=v0.1.0; print what to do next, and push nothing
	@test -n "$(VERSION)" || { echo "make release VERSION=v0.1.0"; exit 1; }
	cd checks && go run ./release -version "$(VERSION)" prepare

tidy: ## go mod tidy in each module, which does not know go.work, and all sums into go.work.sum
	cd checks && go run ./release tidy
	go mod download # looks at more than any other command, so that none changes go.work.sum

.PHONY: picture
picture: ## take the pictures of the pages in the READMEs anew: four minutes
	cd checks/page && TICKWHEEL_BROWSER=required go test -run Picture -picture "$(CURDIR)/checks/page/page.png" -admin-picture "$(CURDIR)/checks/page/jobs.png" .

.PHONY: fuzz
fuzz: ## fuzz the wheel, a Pool's Locals and the purgatory against their models (FUZZTIME=30s each)
	go test ./timingwheel -run '^$$' -fuzz FuzzModel -fuzztime $(FUZZTIME) -fuzzminimizetime 10x
	go test ./timingwheel/pool -run '^$$' -fuzz FuzzLocal -fuzztime $(FUZZTIME) -fuzzminimizetime 10x
	go test ./purgatory -run '^$$' -fuzz FuzzModel -fuzztime $(FUZZTIME) -fuzzminimizetime 10x

.PHONY: soak
soak: ## run wheels under every kind of load at the same time (DURATION=10m)
	cd checks && go run ./soak -for $(DURATION)

.PHONY: adoption
adoption: ## run other people's suites with package time and on the wheel, in turn: an hour, as root on Linux
	cd checks && go run ./adoption

.PHONY: std
std: ## run Go's own tests of packages time and context on the wheel, with both releases of Go: a minute
	@set -e; for go in $(RELEASES); do (set -x; cd checks; GOTOOLCHAIN=$$go go run ./std); done

.PHONY: nightly
nightly: ## all that is random, at length and with fresh seeds: fuzz and soak for DURATION=10m each, and half an hour
	$(MAKE) fuzz FUZZTIME=$(DURATION)
	$(MAKE) soak
	go test ./timingwheel -run AreLike -fresh 2000 -timeout 1h
	cd checks && go test -count 20 -timeout 1h ./keyed ./purgatory
	go test -race -cpu 1,2,8 -count 3 -timeout 2h ./bucket ./delayqueue ./internal/... ./purgatory ./timingwheel/... ./timingwheel/tests

.PHONY: chaos
chaos: ## harm what runs durable jobs, each of 42 faults for DURATION=10m, and count what is lost
	cd durable/trials && go run . chaos -for $(DURATION)

.PHONY: bench-durable
bench-durable: ## measure durable jobs on the embedded engine: some minutes
	cd durable/trials && go run . bench

.PHONY: bench-fleet
bench-fleet: ## measure what workers of different kinds cost one another, on both engines: nine minutes
	cd durable/trials && go run . fleet

.PHONY: bench-limits
bench-limits: ## measure what limits promise while workers are killed, and print the goals (DURATION=10m)
	cd durable/trials && go run . limits -for $(DURATION)

.PHONY: bench-postgres
bench-postgres: ## measure durable jobs on PostgreSQL beside River: seven minutes
	cd durable/postgres/bench && go run .

# BENCH='Mix|Fire' chooses benchmarks by name; the results of the others stay.
.PHONY: bench bench-quick
bench: ## measure the wheel, package time, its peers and a heap: three quarters of an hour (BENCH='Mix|Fire')
	cd benchmarks && go run . -bench '$(BENCH)' -readme ../README.md

bench-quick: ## the same in one round, into a temporary folder: ten minutes
	cd benchmarks && go run . -bench '$(BENCH)' -rounds 1 -out "$$(mktemp -d)"

.PHONY: test-benchmarks
test-benchmarks: ## test the benchmarks and run all with small loads, without the race detector: rivals have races
	cd benchmarks && go test -short -bench . -benchtime 1x ./...

.PHONY: lint
lint: ## go vet and staticcheck, in each module
	@set -e; for module in . $(NESTED); do (set -x; cd $$module; go vet ./...; go run $(STATICCHECK) ./...); done

.PHONY: fmt
fmt: ## format the code
	gofmt -l -w .

.PHONY: fmt-check
fmt-check: ## check that the code is formatted
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt wants to change:"; echo "$$unformatted"; exit 1; }

# By the tests of any package, since those of the surface are the engine's, too. A range of code is
# in the profile once for each package that was tested.
COVERED := ./bucket ./delayqueue ./dropin/... ./internal/heap ./internal/shrinking ./purgatory ./timingwheel/...
.PHONY: cover
cover: ## measure the coverage of the library's packages, at least 95 % each
	go test -coverpkg=$(subst $() $(),$(comma),$(COVERED)) -coverprofile=coverage.out $(COVERED) ./timingwheel/tests >/dev/null
	@awk 'NR > 1 { n[$$1] = $$2; if ($$3 > 0) hit[$$1] = 1 } END { \
		for (r in n) { p = r; sub("/[^/]*$$", "", p); all[p] += n[r]; if (hit[r]) some[p] += n[r] } \
		for (p in all) { c = 100 * some[p] / all[p]; printf "%5.1f %%  %s\n", c, p; if (c < 95) bad = 1 } exit bad }' coverage.out

.PHONY: examples
examples: ## run the examples
	go run ./examples/quickstart
	go run ./examples/idleconn -n 1000 -idle 1s
	go run ./examples/httptimeout
	go run ./examples/retry -calls 1000 -limit 1m
	go run ./examples/simulation -users 20000
	go run ./examples/live -addr 127.0.0.1:0 -duration 2s
	go run ./examples/longpoll -n 1000
	go run ./examples/quorum
	cd examples/integrations && go run ./cron -for 2s
	cd examples/integrations && go run ./pool
	cd examples/integrations && go run ./reminders -dir "$$(mktemp -d)" add 10m "call back"

# Of Prometheus only the tool: its package starts a server.
.PHONY: install-servers
install-servers: ## install what some tests need beside Go and a C compiler, as root on Debian
	command -v chromium || { apt-get update && apt-get install -y --no-install-recommends chromium fonts-liberation; }
	test -x /usr/sbin/pgbouncer && ls /usr/lib/postgresql/*/bin/initdb || \
		{ apt-get update && apt-get install -y --no-install-recommends postgresql pgbouncer; }
	command -v promtool || { apt-get update && dir=$$(mktemp -d) && cd $$dir && apt-get download prometheus && \
		dpkg-deb -x prometheus_*.deb . && install usr/bin/promtool /usr/local/bin && rm -r $$dir; }

# What the tests that were skipped would have needed, since go test does not say.
.PHONY: missing
missing:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		echo "no Chromium is installed: the tests of the page are skipped"
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo "no PostgreSQL server is installed: the tests of jobs in PostgreSQL are skipped"
	@command -v promtool >/dev/null || echo "no promtool is installed: the alerts on durable jobs are not tested by it"

.PHONY: ci
ci: ## what CI runs: half an hour on two processors
	.ci/run

.PHONY: check
check: fmt-check lint test-long test-nested test-durable test-benchmarks examples ## all that must hold before a change lands
