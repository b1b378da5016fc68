# Plimsoll. `make help` lists the targets; `make demo` and `make test` are all a
# fresh machine with Go, gcc, make and git needs.
SHELL := /usr/bin/env bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

GO            ?= go
CONTROLLERGEN := $(GO) tool -modfile=.tools/controller-gen.mod controller-gen
GOLANGCI      := $(GO) tool -modfile=.tools/golangci-lint.mod golangci-lint
LAB           := $(GO) run ./test/lab
# Only the exporter needs cgo: it loads NVIDIA's library at run time.
export CGO_ENABLED := 0
export CGO_CFLAGS := -O2 -Wno-deprecated-declarations

.PHONY: help
help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 20

##@ Use
.PHONY: build demo
build: ## Build bin/plimsoll-operator, bin/plimsoll-exporter and bin/kubectl-plimsoll
	$(GO) build -o bin/ ./operator/cmd/plimsoll-operator ./operator/cmd/kubectl-plimsoll
	CGO_ENABLED=1 $(GO) build -o bin/ ./exporter/cmd/plimsoll-exporter

demo: ## Boot a fleet on this machine and watch a metric become a placement (KEEP=1 leaves it running)
	$(GO) run ./test/demo $(if $(KEEP),--keep)

##@ Test
.PHONY: test test-unit test-rules test-integration test-e2e test-e2e-fast bench bench-lab soak soak-exporter fuzz
test: test-unit test-rules test-integration test-e2e-fast ## Unit, rules, integration and, on the lab, what takes seconds each

test-unit: ## Tests that need nothing but Go (and gcc for the fake of NVIDIA's library)
	$(GO) test ./operator/... ./config/... ./dashboards/... ./test/contract/... ./test/lab/...
	CGO_ENABLED=1 $(GO) test ./exporter/...

.PHONY: test-gpu
test-gpu: ## This machine's own NVIDIA library: invariants, and the same numbers as nvidia-smi
	CGO_ENABLED=1 PLIMSOLL_NVML=real $(GO) test -count=1 -v -run "TestDriver(Conforms|AgreesWithNvidiaSMI)" ./exporter/internal/nvml

test-rules: ## Recording rules and alerts, checked and unit-tested by promtool
	promtool=$$($(LAB) path promtool) && "$$promtool" check rules rules/recording.yaml rules/alerts.yaml && "$$promtool" test rules rules/tests/*.yaml

test-integration: ## Controllers against a real kube-apiserver, the backtest against a real Prometheus, the exporter's metrics by promtool
	assets=$$(dirname "$$($(LAB) path kube-apiserver)") && KUBEBUILDER_ASSETS="$$assets" $(GO) test -tags integration -p 1 -timeout 10m ./config/... ./operator/internal/controller/... ./operator/internal/publish/... ./exporter/internal/kube/... ./operator/internal/cli/...
	CGO_ENABLED=1 $(GO) test -tags integration -run Promtool ./exporter/cmd/plimsoll-exporter

test-e2e: ## The whole fleet: every outcome that a user sees, on real components (RUN=regexp picks some)
	$(GO) test -tags e2e,long -count=1 -timeout 45m $(if $(RUN),-run '$(RUN)') ./test/e2e/...

test-e2e-fast: ## Those of test-e2e that are part of make test
	$(GO) test -tags e2e -count=1 -timeout 30m $(if $(RUN),-run '$(RUN)') ./test/e2e/...

bench: ## Benchmarks; compare runs with benchstat
	$(GO) test -run '^$$' -bench . -benchmem ./operator/internal/...
	CGO_ENABLED=1 $(GO) test -run '^$$' -bench . -benchmem ./exporter/...
	assets=$$(dirname "$$($(LAB) path kube-apiserver)") && KUBEBUILDER_ASSETS="$$assets" $(GO) test -tags integration -count=1 -v ./test/bench

bench-lab: ## Admission on a whole fleet: rates, waits and where jobs land, beside Kueue's own dispatchers
	$(GO) test -tags labbench -count=1 -timeout 40m -v ./test/bench

FUZZTIME ?= 10m
fuzz: ## Fuzz what reads untrusted input, FUZZTIME each
	for target in $$(grep -rhoE '^func Fuzz[A-Za-z]+' --include=*_test.go operator exporter | sed 's/func //'); do \
	  pkg=$$(dirname "$$(grep -rlE "^func $$target\(" --include=*_test.go operator exporter)"); \
	  $(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) "./$$pkg"; done

soak: ## 1,000 workloads under seeded faults (JOBS=number, SOAK=minutes at most, SEED=number)
	$(GO) test -tags e2e,soak -count=1 -timeout 4h -v -run Soak ./test/e2e/...

soak-exporter: ## Two minutes of the exporter as a process: what it holds does not grow, and stays under 40 MiB
	CGO_ENABLED=1 $(GO) test -tags soak -count=1 -timeout 5m -v -run Soak ./exporter/cmd/plimsoll-exporter

##@ Keep
.PHONY: lint generate manifests verify
lint: ## golangci-lint with .golangci.yml
	CGO_ENABLED=1 $(GOLANGCI) run ./...

generate: ## Deepcopy functions and METRICS.md
	$(CONTROLLERGEN) object paths=./operator/api/...
	CGO_ENABLED=1 $(GO) generate ./exporter/...

manifests: ## CRDs and the operator's role, from types and markers
	$(CONTROLLERGEN) crd:generateEmbeddedObjectMeta=false paths=./operator/api/... output:crd:dir=config/crd
	$(CONTROLLERGEN) rbac:roleName=plimsoll-operator paths=./operator/... output:rbac:dir=config/rbac

verify: generate manifests ## Fail when generated files differ from what is committed, or code is not formatted
	@test -z "$$(gofmt -l operator exporter dashboards test)" || { gofmt -l operator exporter dashboards test; echo "run gofmt -w on these"; exit 1; }
	git diff --exit-code -- operator/api config exporter/METRICS.md
