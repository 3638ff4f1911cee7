# The module's own tools are pinned here rather than in go.mod, so that they reach
# no user's dependency graph.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
LICENSES    := github.com/google/go-licenses@v1.6.0
ALLOWED     := Apache-2.0,MIT,BSD-2-Clause,BSD-3-Clause,ISC
SBOM        := github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@v1.9.0
DURATION    ?= 10m

# What needs more than the core module may depend on is a module of its own. go.work lists
# all but benchmarks, and says which are not published.
NESTED      := ./benchmarks/ $(addsuffix /,$(shell sed -n 's,^\t\(\./[^ ]*\).*,\1,p' go.work))
PUBLISHED   := . $(shell sed -n 's,^\t\(\./[^ ]*\)$$,\1,p' go.work)
comma := ,
DURABLE     := $(filter ./durable/%,$(NESTED))
# Modules that are tested with the core.
WITH_CORE   := ./timingwheel/debug ./timingwheel/tests
# Those in examples/integrations use servers, and are tested with durable jobs.
EXAMPLES     = $(shell go list ./examples/... | grep -v /integrations)

# The last release of Go and the one before.
RELEASES    := go1.26.8 go1.27.0

# What no test runs on.
SYSTEMS     := windows/amd64 windows/arm64 darwin/amd64 darwin/arm64 freebsd/amd64 freebsd/arm64 \
	linux/386 linux/arm linux/arm64 linux/riscv64 js/wasm wasip1/wasm

.DEFAULT_GOAL := help

##@ First

.PHONY: help test examples bench bench-quick check
help: ## list the targets
	@awk -F ':.*## ' '/^##@ /{print substr($$0, 5) ":"} /^[a-z0-9-]+( [a-z0-9-]+)*:.*## /{printf "  make %-15s %s\n", substr($$1, 1, match($$1 " ", / /) - 1), $$2}' $(MAKEFILE_LIST)

# Fewer seeds and rounds than test-long has; each promise has a test here, too.
test: compiler ## the core and the examples keep their promises: short tests with the race detector, two minutes
	GOWORK=off go test -race -short -timeout 30m ./... # with the testify that the core asks for
	go test -race -short -timeout 30m $(WITH_CORE) $(EXAMPLES)
	go test -race -short -tags tickwheel_pool -run 'Shard|Processor|GOMAXPROCS|Stress' ./timingwheel ./timingwheel/internal/engine # without the processor's number

examples: ## the examples run
	go run ./examples/quickstart
	go run ./examples/idleconn -n 1000 -idle 1s
	go run ./examples/httptimeout
	go run ./examples/retry -calls 1000 -limit 1m
	go run ./examples/simulation -users 20000
	go run ./examples/profile -o "$$(mktemp)" -n 20000
	go run ./examples/live -addr 127.0.0.1:0 -duration 2s
	go run ./examples/longpoll -n 1000
	go run ./examples/quorum
	go run ./examples/integrations/cron -for 2s
	go run ./examples/integrations/pool
	go run ./examples/integrations/reminders -dir "$$(mktemp -d)" add 10m "call back"

.PHONY: compiler
compiler:
	@command -v "$$(go env CC)" >/dev/null || { echo "The race detector needs a C compiler, and there is no $$(go env CC). Install gcc, or run: go test -short ./..."; exit 1; }

# BENCH='Mix|Fire' chooses benchmarks by name; the results of the others stay.
bench: ## the wheel's speed beside package time, its peers and a heap: an hour and a half (BENCH='Mix|Fire'; bench-quick: one round)
	cd benchmarks && GOTOOLCHAIN=$(firstword $(RELEASES)) go run . -bench '$(BENCH)'
	cd benchmarks && GOTOOLCHAIN=$(lastword $(RELEASES)) go run . -beside -bench '$(BENCH)' -readme ../README.md

bench-quick:
	cd benchmarks && go run . -bench '$(BENCH)' -rounds 1 -out "$$(mktemp -d)"

check: lint test-long test-modules test-durable examples ## all that must hold before a change lands

##@ Then

.PHONY: ci
ci: ## all that CI checks: 17 minutes on two processors
	.ci/run

.PHONY: test-long
test-long: ## the core and the examples keep their promises with more seeds and rounds
	go test -race -timeout 30m ./... $(WITH_CORE) $(EXAMPLES)

.PHONY: test-modules test-benchmarks
test-modules: missing test-benchmarks ## the checks, the benchmarks and what else is a module of its own pass their tests
	@set -e; for module in $(filter-out ./benchmarks/ ./examples/ $(addsuffix /,$(WITH_CORE)) $(DURABLE),$(NESTED)); do (set -x; cd $$module; go test -race -timeout 30m $$(go list ./... | grep -v checks/docs)); done
	cd checks && go test -count 1 ./docs # the go command does not know that it reads what is not in its module; it has no goroutines

test-benchmarks: # without the race detector: rivals have races
	cd benchmarks && go test -short -bench . -benchtime 1x ./...

# The tests of servers wait most of their time, so several of a package run at once, on two processors,
# too. Those of JetStream are first, since beside other servers theirs do not answer in time; of the rest the
# longest are first. One of two places is for the targets of BESIDE until they end. These have the least priority, and
# use the time in which the servers wait. All is compiled before (go list -export), since -p 1
# would compile on one processor. The faults run without the race detector here, and with it in nightly.
BESIDE ?=
DURABLE_TESTS := $(filter-out %/jetstream/ %/trials/,$(DURABLE:%=test-in-%)) test-in-./examples/integrations/
LONGEST := test-trials test-in-./durable/postgres/
TRIALS := cd durable/trials && go test -p 1 -timeout 20m
COMPILED = go list -race -test -deps -export ./... >/dev/null
.PHONY: test-durable test-by-turns test-beside test-jetstream test-trials $(DURABLE_TESTS)
test-durable: missing ## durable jobs keep their promises on real servers, whatever harms them
	$(MAKE) --no-print-directory -j2 -Otarget test-by-turns $(if $(BESIDE),test-beside)

test-by-turns:
	$(MAKE) --no-print-directory test-jetstream
	$(MAKE) --no-print-directory $(LONGEST) $(filter-out $(LONGEST),$(DURABLE_TESTS))

test-beside:
	nice -n 19 $(MAKE) --no-print-directory $(BESIDE)

test-jetstream:
	cd durable/jetstream && $(COMPILED) && go test -race -p 2 -parallel 4 -timeout 20m ./...

$(DURABLE_TESTS): test-in-%:
	cd $* && $(COMPILED) && go test -race -p 1 -parallel 3 -timeout 20m ./...

test-trials:
	$(TRIALS) ./...

# One variable for each suite says which server it starts; .ci/server installs it. A release that cannot be had is
# skipped with a sentence, or fails with it if TICKWHEEL_POSTGRES=required is set. With SHORT=1 only some of the tests that
# every engine has run.
PG ?= 14 18
NATS ?= 2.12 2.15
SHORT ?=
SOME := TestConformance$$/^(InsertRunGone|Names|Keys|OnKey|Retries|Deaths|LimitRunning|ScheduleShared|CancelAgainstClaim|Accounts)$$
.PHONY: test-servers
test-servers: ## durable jobs keep their promises on other releases of the servers: PG="14 18" NATS="2.12 2.15" (SHORT=1: fewer tests)
	@run() { at=$$(.ci/server $$1 $$2) || { [ $$? = 3 ] && [ "$$TICKWHEEL_POSTGRES" != required ]; return; }; \
		(set -x; cd durable/$$3 && env $$4=$$at go test -p 1 -parallel 3 -timeout 30m $(if $(SHORT),-run '$(SOME)' .,./...)); }; set -e; \
	for release in $(PG); do run postgres $$release postgres TICKWHEEL_POSTGRES_PROGRAMS; done; \
	for release in $(NATS); do run nats $$release jetstream TICKWHEEL_NATS_PROGRAM; done

# No race detector where an int has 32 bits. go vet compiles what is imported, and checks the types of
# the rest, tests included.
.PHONY: test-systems test-386
test-systems: test-386 ## the library runs with 32 bits, and builds for all supported systems, tests included
	@set -e; for system in $(SYSTEMS); do export GOOS=$${system%/*} GOARCH=$${system#*/} CGO_ENABLED=0; \
		for module in $(PUBLISHED); do (echo "$$system $$module"; cd $$module; go build -o /dev/null ./...; go vet ./...); done; \
		go vet ./timingwheel/tests $(EXAMPLES); done

# With SHORT=1 only the tests that a size of int may break.
test-386:
	GOARCH=386 CGO_ENABLED=0 nice go test -short $(if $(SHORT),-run "Model|Stress|Fault|Extreme|Bounds") \
		./bucket ./delayqueue ./internal/... ./purgatory ./timingwheel/... $(WITH_CORE)

# Node runs it. There is one thread, which is taken from no goroutine.
.PHONY: test-wasm
test-wasm: ## the core's short tests pass on js/wasm, under node: four minutes
	GOOS=js GOARCH=wasm go test -short -timeout 30m -exec "$$(go env GOROOT)/lib/wasm/go_js_wasm_exec" \
		./bucket ./delayqueue ./internal/... ./purgatory ./timingwheel/...

# GOWORK=off: with the testify that the core itself asks for.
.PHONY: test-releases
test-releases: ## both supported releases of Go pass: the short tests, and Go's own tests of time and context on the wheel
	@set -e; for go in $(RELEASES); do export GOTOOLCHAIN=$$go; \
		(set -x; go build -ldflags=-checklinkname=1 -o /dev/null ./examples/quickstart; GOWORK=off go test -short ./...; go test -short $(WITH_CORE) $(EXAMPLES); \
		(cd timingwheel/prometheus; go test ./...)); done
	$(MAKE) std

.PHONY: std
std: ## Go's own tests of packages time and context pass on the wheel, with both releases of Go: a minute
	@set -e; for go in $(RELEASES); do (set -x; cd checks; GOTOOLCHAIN=$$go go run ./std); done

.PHONY: lint
lint: ## each module is formatted, and go vet and staticcheck find nothing
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || { echo "gofmt -w wants to change:"; echo "$$unformatted"; exit 1; }
	@set -e; for module in . $(NESTED); do (set -x; cd $$module; go vet ./...; go run $(STATICCHECK) ./...); done

# By the tests of any package, since those of the surface are the engine's, too. A range of code is
# in the profile once for each package that was tested.
COVERED := ./bucket ./delayqueue ./dropin/... ./internal/heap ./internal/shrinking ./purgatory ./timingwheel/... ./timingwheel/debug
.PHONY: cover
cover: ## tests cover 95 % of each of the library's packages
	go test -coverpkg=$(subst $() $(),$(comma),$(COVERED)) -coverprofile=coverage.out $(COVERED) ./timingwheel/tests >/dev/null
	@awk 'NR > 1 { n[$$1] = $$2; if ($$3 > 0) hit[$$1] = 1 } END { \
		for (r in n) { p = r; sub("/[^/]*$$", "", p); all[p] += n[r]; if (hit[r]) some[p] += n[r] } \
		for (p in all) { c = 100 * some[p] / all[p]; printf "%5.1f %%  %s\n", c, p; if (c < 95) bad = 1 } exit bad }' coverage.out

# As the time ends, the go command itself fails now and then: it prints the line that is looked for
# here, and names no input that fails (golang/go#75804). No test of ours has failed then.
fuzz = log=$$(mktemp); go test -run '^$$' -fuzztime $(DURATION) -fuzzminimizetime 10x -fuzz $(1) | tee $$log; \
	grep -q '^ok' $$log || { grep -q '^    context deadline exceeded$$' $$log && ! grep -q 'Failing input' $$log; }; rc=$$?; rm $$log; exit $$rc
.PHONY: nightly
nightly: ## random inputs break no promise: fuzz and soak for DURATION=10m each, histories with fresh seeds, and half an hour
	$(call fuzz,FuzzModel ./timingwheel)
	$(call fuzz,FuzzLocal ./timingwheel/pool)
	$(call fuzz,FuzzModel ./purgatory)
	cd checks && go test -v -timeout 0 ./soak -for $(DURATION)
	go test ./timingwheel/tests -run AreLike -fresh 2000 -timeout 1h
	cd checks && go test -count 20 -timeout 1h ./keyed ./purgatory
	$(TRIALS) -race ./...
	$(MAKE) PG="14 15 16 17 18" NATS="2.12 2.14 2.15" test-servers
	$(MAKE) test-wasm
	go test -race -cpu 1,2,8 -count 3 -timeout 2h ./bucket ./delayqueue ./internal/... ./purgatory ./timingwheel/... $(WITH_CORE)

.PHONY: adoption
adoption: ## other people's suites pass on the wheel as with package time: 45 minutes, as root on Linux
	cd checks && go run ./adoption

.PHONY: chaos
chaos: ## no fault loses a durable job: each of 60 for DURATION=10m
	cd durable/trials && go run . chaos -for $(DURATION)

.PHONY: bench-durable bench-fleet bench-limits bench-postgres
bench-durable: ## the speed of durable jobs on JetStream; bench-postgres: beside River; bench-fleet: of workers of many kinds; bench-limits: goals of limits
	cd durable/trials && go run . bench

bench-fleet: # on both engines: ten minutes
	cd durable/trials && go run . fleet

bench-limits: # three minutes
	cd durable/trials && go run . limits

bench-postgres: # seven minutes
	cd durable/trials && go run . beside/insert,late,overdue

.PHONY: bench-peers
bench-peers: ## the wheel beside the timers of Java and C: twelve minutes (make install-peers installs them)
	cd benchmarks && GOTOOLCHAIN=$(firstword $(RELEASES)) go run ./peers
	cd benchmarks && go run . -report

# VERSION is that of the next release; without it, the one that the modules ask of each other.
.PHONY: release release-check tidy dependencies sbom
release-check: ## a stranger can get, build and run what would be published, and CHANGELOG.md names each incompatible change
	cd checks && go run ./release -version "$(VERSION)" check

release: ## the same, and prepare the checkout for VERSION=v0.1.0; print what to do next, and push nothing
	@test -n "$(VERSION)" || { echo "make release VERSION=v0.1.0"; exit 1; }
	cd checks && go run ./release -version "$(VERSION)" prepare

dependencies: ## no dependency has a known hole, or a licence that asks for more than a notice
	@set -e; for module in $(PUBLISHED); do (set -x; cd $$module; go run $(GOVULNCHECK) ./...; \
		go run $(LICENSES) check --allowed_licenses=$(ALLOWED) --ignore github.com/tickwheel/tickwheel ./...); done

# In a workspace of one module and its replacements: that of the checkout mixes what all modules ask for.
sbom: ## write the list of each module's dependencies, with their licences and sums, into the folder sbom
	mkdir -p sbom
	@set -e; dir=$$(mktemp -d); export GOWORK=$$dir/go.work; cp go.work.sum $$dir; for module in $(PUBLISHED); do \
		sed -e '/^use (/,/^)/d' -e 's,=> \.,=> $(CURDIR),' go.work >$$GOWORK; echo "use $(CURDIR)/$$module" >>$$GOWORK; \
		(set -x; cd $$module; go run $(SBOM) mod -json -licenses -output "$(CURDIR)/sbom/$$(go list -m | tr / _).json" .); done; rm -r $$dir
	sed -i 's,$(CURDIR),$(shell go list -f '{{.Module.Path}}' .),g' sbom/*.json # modules that were replaced

tidy: ## go.mod of each module, and go.work.sum, have what they need, and no more
	cd checks && go run ./release tidy
	cd benchmarks && go mod tidy && rm go.work.sum && go list -m all >/dev/null
	rm go.work.sum
	go list -m all >/dev/null # reads each go.mod, so that no other command adds a line
	dir=$$(mktemp -d) && go work vendor -o "$$dir" && rm -r "$$dir" # reads each package of a build, on all systems

# Of Prometheus only the tool: its package starts a server.
.PHONY: install-servers
install-servers: ## install what some tests need beside Go and a C compiler, as root on Debian
	command -v chromium || { apt-get update && apt-get install -y --no-install-recommends chromium fonts-liberation; }
	test -x /usr/sbin/pgbouncer && ls /usr/lib/postgresql/*/bin/initdb || \
		{ apt-get update && apt-get install -y --no-install-recommends postgresql pgbouncer; }
	command -v promtool || { apt-get update && dir=$$(mktemp -d) && cd $$dir && apt-get download prometheus && \
		dpkg-deb -x prometheus_*.deb . && install usr/bin/promtool /usr/local/bin && rm -r $$dir; }

.PHONY: install-peers
install-peers: ## install what make bench-peers needs, as root on Debian
	apt-get update && apt-get install -y --no-install-recommends default-jdk-headless libnetty-java libuv1-dev libevent-dev gcc libc6-dev

# What the tests that were skipped would have needed, since go test does not say.
.PHONY: missing
missing:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null || \
		echo "no Chromium is installed: the tests of the page are skipped"
	@command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || echo "no PostgreSQL server is installed: the tests of jobs in PostgreSQL are skipped"
	@command -v promtool >/dev/null || echo "no promtool is installed: the alerts on durable jobs are not tested by it"
