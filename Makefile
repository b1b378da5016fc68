# `make help` lists the targets. They need Go, gcc, make and git. `make demo` and
# `make test` are the best start.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO            ?= go
CONTROLLERGEN := $(GO) tool -modfile=.tools/controller-gen.mod controller-gen
GOLANGCI      := $(GO) tool -modfile=.tools/golangci-lint.mod golangci-lint
LAB           := $(GO) run ./test/lab
SELECT        := $(GO) run ./test/select
# Tests, linters, the lab and the demo use Go's own settings for cgo, as a plain `go test`
# does. Another setting would compile all packages once more. Two things differ anyway:
# programs for users, of which only the exporter needs cgo to load NVIDIA's library at run
# time, and tests with the race detector. Those hide warnings about deprecated functions.
# A program with the race detector sleeps for 1 s when it ends, and tests start hundreds.
comma         := ,
NO_WARNINGS   := -O2 -Wno-deprecated-declarations
CGO           := CGO_ENABLED=1 CGO_CFLAGS='$(NO_WARNINGS)'
RACETEST      := GORACE=atexit_sleep_ms=50 $(CGO) $(GO) test -race

# VERSION is stamped into programs and images, and tags the images.
VERSION  ?= dev
REVISION := $(shell git rev-parse HEAD 2>/dev/null)
CREATED  := $(shell git log -1 --format=%ct 2>/dev/null)
STAMP    := github.com/prometheus/common/version
LDFLAGS  := -s -w -X $(STAMP).Version=$(VERSION) -X $(STAMP).Revision=$(REVISION)
GOBUILD  := $(GO) build -trimpath -buildvcs=false -ldflags '$(LDFLAGS)'

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

##@ Use
.PHONY: build demo images release
build: ## Build bin/plimsoll-operator, bin/plimsoll-exporter and bin/kubectl-plimsoll (VERSION=v1.2.3)
	CGO_ENABLED=0 $(GOBUILD) -o bin/ ./operator/cmd/plimsoll-operator ./operator/cmd/kubectl-plimsoll
	ln -sf kubectl-plimsoll bin/kubectl_complete-plimsoll
	$(CGO) $(GOBUILD) -o bin/ ./exporter/cmd/plimsoll-exporter

IMAGES    ?= operator,cli,exporter
PLATFORMS ?= linux/amd64,linux/arm64
images release: export CGO_CFLAGS := $(NO_WARNINGS)
images: ## Build images in dist/images (BASE=host or an image for the exporter, IMAGES=, PLATFORMS=, REGISTRY= pushes)
	$(GO) -C .tools/images run . --version='$(VERSION)' --revision='$(REVISION)' --created='$(CREATED)' --ldflags='$(LDFLAGS)' \
	  --images='$(IMAGES)' --platforms='$(PLATFORMS)' --base='$(BASE)' --push='$(REGISTRY)'

release: images ## Write the files of a release to dist/release/VERSION (VERSION=v1.2.3, and as for images; SIGNING_KEY=, DOWNLOADS=)
	$(GO) -C .tools/charts run ./release --version='$(VERSION)' --created='$(CREATED)' --ldflags='$(LDFLAGS)' \
	  --downloads='$(DOWNLOADS)' --key='$(if $(SIGNING_KEY),$(abspath $(SIGNING_KEY)))'

demo: ## Show how metrics decide placement, in one process and then on a fleet (QUICK=1 ends before the fleet, KEEP=1 keeps it running)
	@echo "Building the demo. Only the first build takes more than seconds."
	@$(GO) run ./test/demo $(if $(QUICK),--quick) $(if $(KEEP),--keep)

.PHONY: lab-bundle
lab-bundle: ## Pack the lab's components into dist/lab-components.tar.gz
	$(LAB) bundle dist/lab-components.tar.gz

##@ Test
.PHONY: test check test-unit test-worlds world test-rules test-integration test-e2e test-e2e-fast test-install bench bench-rules bench-lab soak soak-exporter fuzz
test: test-unit test-worlds test-tools test-rules test-integration test-e2e-fast ## Run test-unit, test-worlds, test-tools, test-rules, test-integration and test-e2e-fast (QUARTER=1 to 4 adds a quarter of all end-to-end tests)

# BASE is the branch with which `make check` compares.
BASE ?= main
# Vet compiles all packages and all tests, and links no program. Scripts of kubectl-plimsoll run
# if it changed itself.
check: ## Compile and vet all, lint what changed since HEAD left BASE (default main), and test it and what imports it, without simulations
	$(GO) vet -tags integration,e2e,long,soak,labbench,chromium ./...
	changed=$$($(SELECT) changed $(BASE)) && affected=$$($(SELECT) affected $(BASE)) && \
	  if [ -z "$$affected" ]; then echo "nothing changed since $(BASE)"; exit; fi; \
	  { [ -z "$$changed" ] || $(GOLANGCI) run $$changed; } && \
	  case " $$changed " in *"/internal/cli"*) skip=;; *) skip='-skip ^TestScripts$$';; esac && \
	  $(GO) test -short -vet=off $$skip $$affected

# The race detector makes programs four times as slow. It watches the packages that start
# goroutines, without their tests in files with the build tag !race and most scripts of
# kubectl-plimsoll, which start hundreds of processes.
UNIT = $(GO) list ./... | grep -v '$(WORLDS:.%=%)$$'
test-unit: ## Run unit tests, with the race detector for packages that start goroutines
	all=$$($(UNIT)); $(GO) test $$($(SELECT) sequential $$all)
	all=$$($(UNIT)); $(GO) test $$($(SELECT) unraced $$all)
	$(GO) test -run '^TestScripts$$' ./operator/internal/cli
	$(RACETEST) -run '^TestScripts$$/^(explain_|preview)' ./operator/internal/cli
	all=$$($(UNIT)); $(RACETEST) -skip '^TestScripts$$' $$($(SELECT) concurrent $$all)

# A world uses one core, so that it repeats exactly: two processes share the seeds.
WORLDS := ./operator/internal/world/driver
SEEDS  ?= 200
FIRST  := $(or $(FIRST),$(shell date +%s)000)
world: ## Run random worlds in virtual time (SEEDS=number, FIRST=seed, SHRINK=runs in which a failing world is made smaller, LOOP=1 runs what package loop has of them, fast)
	$(GO) test -count=1 -timeout 24h -v $(WORLDS) -run RandomWorlds -seeds $(SEEDS) -first $(FIRST) $(if $(SHRINK),-shrink $(SHRINK)) $(if $(LOOP),-loop)

# The seeds of test-worlds are the same each time. Fresh ones are for `make world`.
test-worlds: ## Run 200 random worlds, the named ones and the stories in virtual time
	$(GO) test -c -o bin/worlds.test $(WORLDS)
	cd $(WORLDS) && { $(CURDIR)/bin/worlds.test -test.run RandomWorlds -seeds 120 -first 1795750022000 & random=$$!; \
	  $(CURDIR)/bin/worlds.test -seeds 80 -first 1795750023120; rest=$$?; wait $$random && exit $$rest; }

.PHONY: test-gpu
test-gpu: ## Test the exporter with the NVIDIA driver of this machine, and compare with nvidia-smi
	CGO_ENABLED=1 PLIMSOLL_NVML=real $(GO) test -count=1 -v -run "TestDriver(Conforms|AgreesWithNvidiaSMI)" ./exporter/internal/nvml

test-rules: ## Check and unit-test recording rules and alerts with promtool
	promtool=$$($(LAB) path promtool) && "$$promtool" check rules rules/recording-*.yaml rules/alerts-*.yaml && "$$promtool" test rules rules/tests/*.yaml

.PHONY: mutants mutants-go
mutants: ## Change each rule in one place at a time: a unit test must fail (FILE=, RUN= and TESTS= select rule files, rules and test files by regexp)
	$(GO) run ./test/mutants $(if $(FILE),-file '$(FILE)') $(if $(RUN),-run '$(RUN)') $(if $(TESTS),-tests '$(TESTS)')

ADMISSION := operator/internal/admission/engine,operator/internal/admission/gate,operator/internal/admission/ledger,operator/internal/admission/lifecycle,operator/internal/admission/waitqueue,operator/internal/controller/workload
mutants-go: ## Change the admission in 100 places, one at a time: a unit test or a world must fail, except for those that world.md names (N=number, SEED=number; takes an hour)
	$(GO) run ./test/mutants/gocode $(if $(N),-n $(N)) $(if $(SEED),-seed $(SEED)) -timeout 6m -packages $(ADMISSION) \
	  -tests './operator/internal/admission/gate ./operator/internal/admission/ledger ./operator/internal/admission/lifecycle ./operator/internal/admission/waitqueue ./operator/internal/controller/workload' \
	  -then '$(GO) test $(WORLDS) -run "RandomWorlds|NamedWorlds|KnownFailures|Scenarios" -seeds 12 -first 1795750022000'

# Each package starts API servers of its own, so two packages can run at a time.
test-integration: ## Run the tests with the tag integration, against a real kube-apiserver, Prometheus and promtool, with the race detector
	assets=$$($(LAB) assets) && tests=$$($(SELECT) tagged integration ./config/... ./operator/... ./exporter/...) && \
	  KUBEBUILDER_ASSETS="$$assets" $(RACETEST) -tags integration -p 2 -timeout 10m $$tests

test-e2e: ## Run all end-to-end tests on a fleet (RUN=regexp selects tests, QUARTER=1 to 4 a quarter of all)
	$(if $(and $(RUN),$(QUARTER)),$(error set RUN or QUARTER, not both))run=$(if $(QUARTER),$$($(SELECT) quarter '$(QUARTER)'),'$(RUN)'); \
	  $(GO) test -tags e2e,long -count=1 -timeout 90m -run "$$run" ./test/e2e

test-e2e-fast: ## Run the end-to-end tests that are part of make test (RUN=regexp selects tests, QUARTER=1 to 4 adds a quarter of all)
	$(if $(and $(RUN),$(QUARTER)),$(error set RUN or QUARTER, not both))run=$(if $(QUARTER),$$($(SELECT) fast-and-quarter '$(QUARTER)'),'$(RUN)'); \
	  $(GO) test -tags e2e$(if $(QUARTER),$(comma)long) -count=1 -timeout $(if $(QUARTER),60m,30m) -run "$$run" ./test/e2e

test-install: ## Follow the short way of config/README.md on a fleet without Plimsoll, and measure it (RUN=regexp selects tests)
	$(GO) test -tags e2e,long -count=1 -timeout 20m -v $(if $(RUN),-run '$(RUN)') ./test/install

bench: ## Run benchmarks of packages and of scoring rounds
	$(GO) test -run '^$$' -bench . -benchmem ./operator/internal/...
	$(GO) test -run '^$$' -bench . -benchmem ./exporter/...
	assets=$$($(LAB) assets) && KUBEBUILDER_ASSETS="$$assets" $(GO) test -tags integration -count=1 -timeout 30m -v ./test/bench

bench-rules: ## Measure the evaluation of the rules on a real Prometheus (CLUSTERS=, NODES=, DEVICES=, INTERVAL=; 100 clusters of 100 nodes with 8 devices need 20 GiB)
	$(GO) test -tags integration,long -run RuleCost -count=1 -timeout 30m -v ./test/bench $(if $(CLUSTERS),-clusters $(CLUSTERS)) $(if $(NODES),-nodes $(NODES)) $(if $(DEVICES),-devices $(DEVICES)) $(if $(INTERVAL),-interval $(INTERVAL))

bench-lab: ## Measure admission on a fleet and compare it with Kueue's own checks and dispatchers
	$(GO) test -tags labbench -count=1 -timeout 60m -v ./test/bench

FUZZTIME ?= 10m
fuzz: ## Run each fuzz test for FUZZTIME (default 10m)
	for target in $$(grep -roE '^func Fuzz[A-Za-z]+' --include=*_test.go operator exporter | sed 's/func //'); do \
	  $(GO) test -run '^$$' -fuzz "^$${target#*:}$$" -fuzztime $(FUZZTIME) "./$$(dirname "$${target%:*}")" || exit 1; done

soak: ## Run 1,000 jobs on a fleet with random faults (JOBS=number, SOAK=minutes, SEED=number, RECORD=absolute path of a record)
	$(GO) test -tags e2e,soak -count=1 -timeout 4h -v -run Soak ./test/e2e/...

soak-exporter: ## Run the exporter for two minutes: its resource use must not grow, its memory stay below 40 MiB
	$(GO) test -tags soak -count=1 -timeout 5m -v -run Soak ./exporter/cmd/plimsoll-exporter

##@ Keep
.PHONY: lint generate manifests verify
lint: ## Run golangci-lint
	$(GOLANGCI) run ./...

generate: ## Generate deepcopy functions, the messages of the TPU runtime, the exporter's METRICS.md and operator/docs/metrics.md
	$(CONTROLLERGEN) object paths=./operator/api/...
	$(GO) -C .tools/proto run . ../../exporter/internal/tpu/tpupb runtime.proto
	$(GO) generate ./exporter/...
	$(GO) test -count=1 -run TestOperatorMetricsReferenceIsGenerated ./test/contract -update

manifests: ## Generate the CRDs, the operator's role and operator/docs/api.md
	$(CONTROLLERGEN) crd:generateEmbeddedObjectMeta=false paths=./operator/api/... output:crd:dir=config/crd
	$(CONTROLLERGEN) rbac:roleName=plimsoll-operator paths=./operator/... output:rbac:dir=config/rbac
	$(GO) test -count=1 -run TestAPIReferenceIsGenerated ./config -update

.PHONY: config charts test-tools
config: ## Generate the files of config/prometheus and config/addon that git ignores, from rules and config/exporter*
	$(GO) run ./config/generate

charts: ## Generate the Helm charts in dist/charts from the kustomize folders, and config/charts.md
	$(GO) -C .tools/charts run ./generate

test-tools: ## Test the builders of images, charts and releases: each chart must equal its kustomize build
	$(GO) -C .tools/charts test -count=1 ./...
	$(GO) -C .tools/images test -count=1 ./...
	$(GO) -C .tools/mixin test -count=1 ./...

.PHONY: pictures look
pictures: ## Draw fit.svg, demo.svg from a run of make demo QUICK=1, fleet.png from a scripted fleet or a real one (THANOS=url), and pages of the CLI; needs chromium, node and npm
	$(GO) run ./dashboards/pictures
	$(GO) run ./test/look $(if $(THANOS),--url '$(THANOS)' --scrape 2s --last 15m) --boards fleet --widths 1280 --themes dark --picture dashboards/pictures/fleet.png
	$(GO) test -tags chromium -count=1 ./operator/internal/cli -run InChromium -args -pictures $(CURDIR)/dashboards/pictures

look: ## Draw all dashboards with Grafana's components, and check the pictures; open all pages of the CLI (needs chromium, node and npm; LOOK=flags)
	$(GO) run ./test/look $(LOOK)
	$(GO) run ./test/look --one-cluster $(LOOK)
	$(GO) test -tags chromium -count=1 ./operator/internal/cli -run InChromium

.PHONY: audit
GOVULNCHECK := $(GO) run golang.org/x/vuln/cmd/govulncheck@v1.8.0
audit: ## Check known vulnerabilities, the licenses of all modules, and that no test or cloud library is shipped
	$(GO) test -run NoTestOrCloudLibraries ./operator
	$(GO) -C .tools/images run . --check-licenses
	@out=$$($(GOVULNCHECK) ./operator/cmd/... ./exporter/cmd/... 2>&1) && echo "$$out" || { \
	  code=$$?; echo "$$out"; \
	  if grep -q 'https://vuln.go.dev' <<<"$$out" && ! grep -q 'Your code is affected' <<<"$$out"; then \
	    echo "SKIPPED: govulncheck could not read its database, so vulnerabilities are NOT checked"; else exit $$code; fi; }

verify: generate manifests charts ## Check that generated files are committed and Go files are formatted
	@test -z "$$(gofmt -l operator exporter config dashboards test)" || { echo "run gofmt -w on:"; gofmt -l operator exporter config dashboards test; exit 1; }
	git diff --exit-code -- operator/api operator/docs/api.md operator/docs/metrics.md config exporter/METRICS.md
