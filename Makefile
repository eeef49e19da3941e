# The commands for development. `make` without a target lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

GO ?= go
# Tools are built once, into Go's cache. Their versions are pinned in a go.mod of their own, apart from the product's.
TOOL := $(GO) tool -modfile=test/tools/go.mod
# Git ignores these folders and $(BIN).
ENVOY_FOLDER := .envoy
KUBELAB_FOLDER := .kubelab
GATEWAY_FOLDER := .envoygateway
# ENVOY_VERSION selects a pinned version, such as 1.36.2 or 1.39.3. Without it, $ENVOY, an envoy on PATH or the newest one is used.
FETCH := deploy/envoy/fetch.sh $(ENVOY_FOLDER) $(ENVOY_VERSION)
BIN := bin
COMMA := ,
# Test packages that have a target of their own. The target unit runs all others.
OWN_TARGET := /test/(sim|chaos|planted|conformance|e2e|lint|kube)$$
# End-to-end tests that only make ci runs, because they take seven minutes.
AT_LENGTH := ^TestEnvoy(LanesAccountAlike|OverloadEjectsNothing|ModelServers|ConversationsReturn|FollowsAThousandEndpoints)$$
AT_LENGTH := $(AT_LENGTH)|^TestEnvoy(PrefillServerStartsLate|TakesPicksWhileThePoolChanges|IsAskedToShowBodies|SplitsPrefillFromDecode)$$
AT_LENGTH := $(AT_LENGTH)|^TestEnvoy(TwoPickers|KeepsStreamsInADrain|OverloadWaitsInThePicker)$$
AT_LENGTH := $(AT_LENGTH)|^TestCommand(GivesMemoryBack|HoldsBodiesWithinTheLimit)$$
AT_LENGTH := $(AT_LENGTH)|^TestEnvoyEjectsSickServers$$/^(its_|it_drains|it_fails|answers_have|answers_stop,|overload$$)

# What make race leaves out, because the race detector sees nothing there: planted faults, whose races are intended, tests of one goroutine
# that take seconds, tests that measure memory, and those that build and run what has no race detector. What lab/conformance plays against
# its own script, test/conformance plays against the picker.
WITHOUT_RACES := /test/(arch|bench|bench/affinity|bench/overload|chart|e2e|kube|lint|planted|recipe|reference|sim)$$
NO_RACES := ^Test(Planted|SchemaIsTheLoaders$$|PluginDocs$$|TablesAreBounded$$|TablesStopGrowing$$|MillionIDsTakeOneShare$$)
NO_RACES := $(NO_RACES)|^Test(QueuesAgreeWithModel|GapsAreBounded|TenantsOfAllSizes|PageHasABound$$|ManyFlowsAreFewSeries$$)
NO_RACES := $(NO_RACES)|^Test(HealthyServerKeepsItsCredit$$|ManyTenantsLeaveASmallPage$$|MainOfAnotherModule$$|Command$$|BenchPolicy$$)
NO_RACES := $(NO_RACES)|^Test(ARightEPPPasses$$|KeptBodiesAreCaught$$)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Without this check, make would only report that a program was not found.
.PHONY: need-go
need-go:
	@command -v $(firstword $(GO)) >/dev/null || { echo 'Go 1.26 or later is needed and is not on PATH; go.dev/dl has it.' >&2; exit 1; }

build release release-check quick unit sim chaos planted conformance e2e e2e-vllm lint vet race bench bench-policy overload benchmarks fuzz-smoke: | need-go

# exec replaces the shell, so that a signal to make reaches the binary.
.PHONY: demo
demo: build ## Simulated servers, Signalbox and a load, in 90 s after the build; ARGS="--serve" stays up, ARGS="--envoy" uses Envoy
	@exec $(BIN)/signalbox demo $(ARGS)

.PHONY: build
build: ## Build bin/signalbox: static, without symbols, as the image has it; a first build takes one to three minutes
	@[ -e $(BIN)/signalbox ] || echo "a first build compiles every dependency: one to three minutes on 2 to 8 cores"
	flags=$$(deploy/version.sh); CGO_ENABLED=0 $(GO) build -trimpath -ldflags="-s -w $$flags" -o $(BIN)/signalbox ./cmd/signalbox

# deploy/release is a separate module, so that its dependencies stay out of the product's.
.PHONY: release
release: ## Binaries, SBOMs, an OCI image, man pages and completion of this commit in dist/, with checksums; VERSION=v1.2.3
	@cd deploy/release && $(GO) run . -root ../.. -out ../../dist

.PHONY: release-check
release-check: ## Build the release of Linux twice, and see that both are equal and whole
	cd deploy/release && $(GO) vet . && $(GO) test -count=1 -timeout 40m .

# Go's cache of results skips packages that have not changed since they passed. The tests of the conformance checker are left out: they
# would take half of the time.
.PHONY: quick
quick: ## Unit tests, whole-tree checks and one seed of the simulation, in a minute
	@$(GO) test $$($(GO) list ./... | grep -v -E '$(OWN_TARGET)|/adapters/lab/conformance$$|/test/recipe$$')
	@$(GO) test -run '^TestFaults' ./test/planted
	@$(GO) test -run '^TestNamedSeed$$' ./test/sim
	@printf '\n%s\n' "Left out: the conformance checker's own tests, the recipe for a scorer, further seeds, conformance, chaos, end to end (make test); lint, race, fuzzing, planted faults, release, Kubernetes (make ci)."

# Tests of end to end mostly wait, and unit tests compute beside them at a lower priority. The simulation has its own clock and conformance
# mostly waits, so both run side by side, too.
.PHONY: test
test: ## Unit tests, simulation, conformance, chaos, and end to end with a real Envoy; says what it leaves out
	@part() { printf '\n== %s, after %d s\n' "$$1" "$$SECONDS"; shift; $(MAKE) --no-print-directory "$$@"; }; \
	part '1 of 3: unit, and end to end' -j2 -Oline nice-unit e2e $(if $(WHOLE),,BRIEF=yes); \
	part '2 of 3: simulation and conformance' -j2 -Otarget sim conformance; \
	part '3 of 3: chaos' chaos; \
	printf '\nPassed in %d s. Left out: ' "$$SECONDS"; \
	printf '%s\n' 'lint, race, fuzzing, planted faults, release, Kubernetes$(if $(WHOLE),,$(COMMA) $(AT_LENGTH)) (make ci); keepalives (make e2e-long).'

.PHONY: nice-unit
nice-unit:
	nice $(MAKE) unit

# The slowest packages come first, so that the others run beside them. -p 3, because the first mostly waits.
.PHONY: unit
unit: ## Tests beside the code and whole-tree checks
	$(GO) test -p 3 -timeout 30m ./adapters/lab/conformance ./test/bench/overload \
	  $$($(GO) list ./... | grep -v -E '$(OWN_TARGET)')
	$(GO) test -timeout 30m -run '^TestFaults' ./test/planted

.PHONY: sim
sim: ## Seeded simulation of the whole actor tree; SEED=n REQUESTS=n plays one seed
	$(GO) test -count=1 -v -timeout 30m ./test/sim $(if $(SEED),-seed $(SEED)) $(if $(REQUESTS),-requests $(REQUESTS))

.PHONY: chaos
chaos: ## Clients that misbehave and parts that fail, over real streams; SEED=n REQUESTS=n plays one seed
	$(GO) test -count=1 -v -timeout 4h ./test/chaos $(if $(SEED),-seed $(SEED)) $(if $(REQUESTS),-requests $(REQUESTS))

# -count=1, because Go's cache of results does not know that these tests depend on the simulation and the chaos run.
.PHONY: planted
planted: ## Faults in the product's source that the simulation and the chaos run must find
	$(GO) test -count=1 -v -timeout 60m -parallel 4 ./test/planted

.PHONY: conformance
conformance: ## The table of ext_proc checks
	$(GO) test -count=1 -timeout 30m ./test/conformance

.PHONY: e2e
e2e: ## Real Envoy, the real binary, simulated model servers; ENVOY=path or ENVOY_VERSION=1.36.2
	@if envoy=$$($(FETCH)); then \
	  ENVOY="$$envoy" $(GO) test -count=1 -v -timeout 20m ./test/e2e $(if $(LONG),-long) $(if $(BRIEF),-skip '$(AT_LENGTH)'); \
	elif [ -n "$(ENVOY_VERSION)" ]; then \
	  exit 1; \
	else \
	  $(GO) test -count=1 -v -timeout 20m ./test/e2e $(if $(LONG),-long) $(if $(BRIEF),-skip '$(AT_LENGTH)'); \
	  printf '\n%s\n' '*** NO ENVOY: every end-to-end test that needs it was left out. ***' >&2; \
	fi

.PHONY: e2e-long
e2e-long: ## The same with the tests that wait for keepalives and deadlines
	@$(MAKE) --no-print-directory e2e LONG=yes

.PHONY: e2e-vllm
e2e-vllm: ## The same against running vLLMs: ENDPOINTS=ip:port,ip:port, none = simulated; STOP, START="command" for the first; OPENAI_PYTHON
	@envoy=$$($(FETCH)); \
	ENVOY="$$envoy" ENDPOINTS="$(ENDPOINTS)" STOP='$(STOP)' START='$(START)' OPENAI_PYTHON="$(OPENAI_PYTHON)" \
	$(GO) test -count=1 -v -run '^TestEnvoy(OpenAIClient|ConversationsReturn|ModelServers)$$' ./test/e2e

# The binary is kept by the hash of its source. Building it takes 4 to 10 minutes of a core once, then nothing.
.PHONY: kubelab
kubelab: | need-go ## Build a kube-apiserver for tests, which takes 4 to 10 minutes the first time
	@test/kubelab/build.sh $(KUBELAB_FOLDER)

# Where kubelab cannot be built, as without a network, nothing can be tested, which a line says. make ci fails there.
.PHONY: kube
kube: | need-go ## Kubernetes, on a real kube-apiserver, partly behind Envoy; RUN=pattern KUBELAB=path CRDS=file REFERENCE_CHART=folder SEED=n FAULTS=n
	@if ! lab=$${KUBELAB:-$$(test/kubelab/build.sh $(KUBELAB_FOLDER))}; then \
	  printf '\n%s\n' '*** NO KUBE-APISERVER: it could not be built, and the tests of Kubernetes were left out. ***' >&2; exit 0; \
	fi; \
	envoy=$$($(FETCH)) || true; export KUBELAB="$$lab" ENVOY="$$envoy"; \
	$(GO) test -count=1 -v -timeout 30m -parallel 8 ./test/kube $(if $(SEED),-seed $(SEED)) $(if $(FAULTS),-faults $(FAULTS)) \
	  $(if $(RUN),-run '$(RUN)') $(if $(CRDS),-crds $(abspath $(CRDS))) \
	  $(if $(REFERENCE_CHART),-reference-chart $(abspath $(REFERENCE_CHART)))

# It is kept like kubelab, and left out where it cannot be built, which fails under CI. Envoy Gateway listens on fixed ports of all addresses, so everything
# runs in a network of its own.
.PHONY: gateway
gateway: | need-go ## deploy/envoy-gateway in a real Envoy Gateway, built once in 4 to 10 minutes; ENVOY_GATEWAY=path
	@if ! lab=$${KUBELAB:-$$(test/kubelab/build.sh $(KUBELAB_FOLDER))}; then \
	  printf '\n%s\n' '*** NO KUBE-APISERVER: it could not be built, and the test of Envoy Gateway was left out. ***' >&2; exit $${CI:+1}; \
	fi; \
	if ! gateway=$${ENVOY_GATEWAY:-$$(test/envoygateway/build.sh $(GATEWAY_FOLDER))}; then \
	  printf '\n%s\n' '*** NO ENVOY GATEWAY: it could not be built, and its test was left out. ***' >&2; exit $${CI:+1}; \
	fi; \
	envoy=$$($(FETCH)) || true; export KUBELAB="$$lab" ENVOY_GATEWAY="$$gateway" ENVOY="$$envoy"; \
	$(GO) test -count=1 -v -timeout 10m -run '^TestGateway$$' -exec '$(CURDIR)/test/envoygateway/apart.sh' ./test/kube

# Tests that wait leave the cores idle, and the checks beside them, at a lower priority, take what is left. So all takes the time of the
# tests. The kube-apiserver comes first. The tests of Kubernetes, which mostly wait, run beside those that compute.
.PHONY: ci
ci: ## Race, test and kube; beside them lint, vet, a little fuzzing, each benchmark once, the release, planted faults
	@$(MAKE) --no-print-directory -j3 -Oline ci-tests ci-kube ci-checks

.PHONY: ci-tests ci-kubelab ci-kube ci-checks
ci-tests:
	$(MAKE) race
	$(MAKE) test WHOLE=yes

ci-kubelab:
	nice $(MAKE) kubelab

ci-kube: ci-kubelab
	$(MAKE) kube

ci-checks: ci-kubelab
	nice $(MAKE) lint
	nice $(MAKE) vet
	nice $(MAKE) fuzz-smoke
	nice $(MAKE) benchmarks BENCHTIME=1x
	nice $(MAKE) release-check
	nice $(MAKE) planted

# go-check-sumtype needs the whole tree in one run: on a single package it finds nothing. -count=1, because test/lint runs the
# linters as programs, whose changes Go's cache of results does not see.
.PHONY: lint
lint: ## Linters and what proves them, formatting, exhaustive switches over sealed interfaces
	$(TOOL) golangci-lint run ./...
	cd deploy/release && $(GO) tool -modfile=../../test/tools/go.mod golangci-lint run --config ../../.golangci.yml ./...
	@# go vet of test/kubelab takes minutes, for it is the whole kube-apiserver.
	@test -z "$$($$($(GO) env GOROOT)/bin/gofmt -l test/kubelab)" || { echo "test/kubelab: gofmt would change it"; exit 1; }
	$(TOOL) go-check-sumtype -default-signifies-exhaustive=false ./...
	$(GO) test -count=1 -timeout 30m ./test/lint

.PHONY: vet
vet: ## go vet
	$(GO) vet ./...

# Under the race detector, test/e2e builds the binary with it too. Packages are left out that run in one goroutine, as the
# simulation and the plays of test/bench in virtual time, that read or build the source, or that look at a binary from outside.
.PHONY: race
race: ## Tests under the race detector (needs a C compiler); LONG=yes adds those of end to end that see nothing new
	@envoy=$$($(FETCH)) || true; \
	packages=$$($(GO) list ./... | grep -v -E '$(WITHOUT_RACES)'); \
	export ENVOY="$$envoy" CGO_ENABLED=1; \
	$(GO) test -race -timeout 20m -skip '$(NO_RACES)' $$packages; \
	$(GO) test -race -timeout 30m ./test/e2e $(if $(LONG),-long); \
	printf '\n%s\n' 'Left out, because the race detector sees nothing there: $(WITHOUT_RACES), $(NO_RACES).'

.PHONY: bench
bench: ## CPU, memory and latency beside the thinnest ext_proc server, as ratios; ARGS="-short", ARGS="-update"
	@$(GO) run ./test/bench $(ARGS)

# With GOGC as it is, a fifth of the time goes into collecting what plays leave.
.PHONY: bench-policy
bench-policy: ## Policies on traces before modelled servers, in virtual time, within 10 min; ARGS="--trace FILE", page in $(BIN)
	@mkdir -p $(BIN)
	GOGC=300 $(GO) run ./cmd/signalbox bench-policy --loads 0.7,1.4,2.5 --html $(BIN)/policies.html $(ARGS)

.PHONY: overload
overload: ## More requests than simulated servers can serve, with flow control and without, over five seeds
	$(GO) test -count=1 -v ./test/bench/overload -seeds 5

.PHONY: benchmarks
benchmarks: ## Every Go benchmark; BENCH=pattern, BENCHTIME=1s
	$(GO) test -run '^$$' -bench '$(or $(BENCH),.)' -benchtime $(or $(BENCHTIME),1s) -benchmem -timeout 30m ./...

# -fuzzminimizetime: by default Go may spend a minute on minimizing one interesting input.
.PHONY: fuzz
fuzz: ## Each fuzz test for FUZZTIME=10m, one after the other
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
	  for name in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
	    echo "$$name in $$(dirname "$$file")"; \
	    $(GO) test -run '^$$' -fuzz "^$$name$$" -fuzztime $(or $(FUZZTIME),10m) -fuzzminimizetime 20x "$$(dirname "$$file")" || exit 1; \
	  done; \
	done

# A number of inputs and not a duration, because a fuzz test can fail merely because its time ran out.
.PHONY: fuzz-smoke
fuzz-smoke: ## Each fuzz test for 2 000 inputs
	@$(MAKE) --no-print-directory fuzz FUZZTIME=2000x

.PHONY: envoy
envoy: ## Make the pinned Envoy available ($ENVOY and PATH win)
	@envoy=$$($(FETCH)); "$$envoy" --version

.PHONY: clean
clean: ## Remove what the other targets made
	rm -rf $(BIN) dist $(ENVOY_FOLDER) $(KUBELAB_FOLDER) $(GATEWAY_FOLDER)
