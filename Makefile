# Crane: build, test, demo. `make help` lists the targets.
#
# Layout rule: every folder with C++ in it becomes a static library of its and its subfolders' *.cpp (except
# *_main.cpp, which become programs); interpose/ becomes libcrane.so, compiled -fPIC together with the two folders
# it stands on. Dependencies between folders point one way: see docs/design.md.

CXX      ?= g++
BUILD    ?= build
WARN     := -Wall -Wextra -Werror
OPT      ?= -O2 -g
SAN      ?=
VERSION  := $(shell cat VERSION)
# spdlog and fmt as the libraries that they are linked with: their headers alone take 13 s of each file to compile.
SPDLOG   := -DSPDLOG_SHARED_LIB -DSPDLOG_COMPILED_LIB -DSPDLOG_FMT_EXTERNAL
CPPFLAGS += -I. -DCRANE_VERSION='"$(VERSION)"' -D_GNU_SOURCE $(SPDLOG) -MMD -MP
CXXFLAGS += -std=c++20 $(OPT) $(WARN) $(SAN)
LDFLAGS  += $(SAN)

# What a recipe failed to finish is not there.
.DELETE_ON_ERROR:
# $(call made_with,NAME,TEXT): a file that changes when the text does. What depends on it is made again when other
# flags are given, or when a source goes. Where there was none it is old: it knows nothing of what was made before.
MADE_WITH = $(BUILD)/made-with
differ    = $(subst x$(1),,x$(2))$(subst x$(2),,x$(1))
begin     = $(if $(wildcard $(MADE_WITH)/$(1)),,$(shell mkdir -p $(MADE_WITH))$(file >$(MADE_WITH)/$(1),$(2))$(shell \
            touch -d @1 $(MADE_WITH)/$(1)))
renew     = $(if $(call differ,$(file <$(MADE_WITH)/$(1)),$(2)),$(file >$(MADE_WITH)/$(1),$(2)))
made_with = $(call begin,$(1),$(strip $(2)))$(call renew,$(1),$(strip $(2)))$(MADE_WITH)/$(1)
COMPILED_WITH := $(call made_with,compile,$(filter-out ccache,$(CXX)) $(CPPFLAGS) $(CXXFLAGS))

# --- libraries of the daemon side -------------------------------------------------------------
PARTS    := timebubble paxos checkpoint proxy proxy/tool dmt_scheduler
# A part's subfolders are its own, but for those that are parts themselves.
own_folders = $(filter-out $(addsuffix /,$(PARTS)),$(wildcard $(1)/*/))
# part_SRCS, given on the command line, makes of a part's library a part of it.
srcs      = $(if $(filter undefined,$(origin $(1)_SRCS)),$(filter-out %_main.cpp,$(wildcard $(1)/*.cpp $(addsuffix *.cpp,$(call own_folders,$(1))))),$($(1)_SRCS))
objs      = $(patsubst %.cpp,$(BUILD)/obj/%.o,$(call srcs,$(1)))
# A part in a subfolder: proxy/tool is libproxy-tool.a.
lib       = $(BUILD)/lib/lib$(subst /,-,$(1)).a
LIBS     := $(foreach p,$(PARTS),$(call lib,$(p)))
# Link order follows the dependency direction: proxy/tool -> proxy -> checkpoint, paxos -> timebubble.
LINKLIBS := $(foreach p,proxy/tool proxy checkpoint paxos timebubble,$(call lib,$(p)))
SYSLIBS  := -levent_openssl -levent -levent_pthreads -lssl -lcrypto -ldb -lxxhash -lspdlog -lfmt \
            -lprometheus-cpp-core -ldw -lelf -lseccomp -pthread

# --- the shim -----------------------------------------------------------------------------------
# A guest in someone else's process: hidden by default, initial-exec TLS, bound at load, first to start.
SHIM_SRCS  := $(wildcard interpose/*.cpp interpose/core/*.cpp) $(call srcs,dmt_scheduler) $(call srcs,timebubble)
SHIM_OBJS  := $(patsubst %.cpp,$(BUILD)/shim/%.o,$(SHIM_SRCS))
# libc declares pointers nonnull that the kernel may be given as null: a check of one must not be left out.
MAY_BE_NULL := -D'__nonnull(which)=' -D'__attribute_nonnull__(which)='
SHIM_FLAGS := $(MAY_BE_NULL) -fPIC -fvisibility=hidden -ftls-model=initial-exec -fno-plt -fno-enforce-eh-specs -U_FORTIFY_SOURCE -fno-stack-protector
SHIM_MADE_WITH := $(call made_with,shim,$(SHIM_FLAGS))
# Its wrappers call each other, whatever functions of these names the program has: Erlang's has a sigaction.
SHIM_LD    := -shared -Wl,-z,initfirst -Wl,-z,now -Wl,-z,defs -Wl,-Bsymbolic-functions -Wl,--exclude-libs,ALL -static-libstdc++

PROGRAMS := $(patsubst %_main.cpp,%,$(wildcard */*_main.cpp proxy/*/*_main.cpp))
BINS     := $(foreach p,$(PROGRAMS),$(BUILD)/bin/$(subst _,-,$(notdir $(p))))

UNIT_SRCS := $(wildcard tests/unit/*.cpp) $(filter-out %_main.cpp,$(wildcard tests/fuzz/*.cpp))
# What decodes the words of peers, servers and clients, for libFuzzer (tests/fuzz).
FUZZ_SRCS := $(wildcard tests/fuzz/*.cpp) timebubble/batch.cpp $(patsubst %,proxy/%.cpp,attached_clients \
             batcher carrier checkpoint_choice checkpoint_fetch checkpoint_mail checkpoint_source checkpoint_words \
             divergence domain_account domain_link first_difference ingress live_server operator_mail \
             output_format output_log_reader output_tail output_windows output_words) \
             checkpoint/file_sum.cpp checkpoint/manifest.cpp \
             $(patsubst %,paxos/%.cpp,core/incarnation core/membership core/message core/types \
             link/address_book link/certificate link/connection link/frame link/peer_address link/refusal_log \
             store/log_scan store/page_scan store/record store/segment)
FUZZ_OBJS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(FUZZ_SRCS))
UNIT_OBJS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(UNIT_SRCS))

.PHONY: all shim help clean format unit unit-py deps demo install uninstall
all: $(BINS) shim
shim: $(BUILD)/lib/libcrane.so

$(BUILD)/obj/%.o: %.cpp $(COMPILED_WITH)
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS) $(CXXFLAGS) -c -o $@ $<
# What the checks of a test expand to takes longer to optimize than it could ever save.
$(BUILD)/obj/tests/unit/%.o: CXXFLAGS += -O0
# Under ASan everything is compiled once more, so by clang, which takes half the time over it. What most files include
# is read once, and again when a system header is another. What computes the least is optimized the least; what the
# decoders' fuzzer runs is as it would have it.
ifneq ($(findstring address,$(SAN)),)
PCH        := $(BUILD)/pch
SLOW_PARTS := checkpoint proxy proxy/tool
# What the tests themselves do wrong is not what is looked for.
CATCH_FLAGS := -O0 -fno-sanitize=undefined
PCH_parts  := spdlog/spdlog.h nlohmann/json.hpp algorithm filesystem fstream functional map optional string vector
PCH_tests  := catch2/catch.hpp $(PCH_parts)
BY_FOLDER  := $(filter-out $(FUZZ_OBJS),$(foreach p,$(SLOW_PARTS),$(call objs,$(p))))
TESTS_READ := $(filter $(BUILD)/obj/tests/unit/test_%,$(UNIT_OBJS))
$(FUZZ_OBJS): CXXFLAGS += -fsanitize=fuzzer-no-link
$(BY_FOLDER): CXXFLAGS += -O0 -include $(PCH)/parts.hpp
$(BY_FOLDER): $(PCH)/parts.hpp.gch
$(TESTS_READ): CXXFLAGS += $(CATCH_FLAGS) -include $(PCH)/tests.hpp
$(TESTS_READ): $(PCH)/tests.hpp.gch
# Of jumps in assembly, clang's assembler takes the long form unless it optimizes.
$(patsubst %.cpp,$(BUILD)/obj/%.o,$(shell grep -l __asm__ tests/unit/*.cpp)): CXXFLAGS += -fno-integrated-as
$(PCH)/tests.hpp.gch: PCH_FLAGS := $(CATCH_FLAGS)
$(PCH)/parts.hpp.gch: PCH_FLAGS := -O0
# Whether it is old is for make to say: a copy of one, as ccache keeps them, has other times in it.
$(PCH)/%.hpp.gch: $(COMPILED_WITH)
	@mkdir -p $(@D)
	printf '#include <%s>\n' $(PCH_$*) >$(PCH)/$*.hpp
	$(CXX) $(filter-out -MMD,$(CPPFLAGS)) -MD $(filter-out -include $(PCH)/%,$(CXXFLAGS)) $(PCH_FLAGS) -Xclang -fno-pch-timestamp \
	    -x c++-header -o $@ $(PCH)/$*.hpp
endif

$(BUILD)/shim/%.o: %.cpp $(COMPILED_WITH) $(SHIM_MADE_WITH)
	@mkdir -p $(@D)
	$(CXX) $(CPPFLAGS) -DCRANE_SHIM $(CXXFLAGS) $(SHIM_FLAGS) -c -o $@ $<

define part_rule
$(call lib,$(1)): $(call objs,$(1)) $(call made_with,lib$(subst /,-,$(1)),$(call objs,$(1)))
	@mkdir -p $$(@D)
	@rm -f $$@
	ar rcs $$@ $$(filter %.o,$$^)
endef
$(foreach p,$(PARTS),$(eval $(call part_rule,$(p))))
# The shim's tables once more, as a library for the unit tests: without what is preloaded.
$(eval $(call part_rule,interpose/core))
UNIT_LIBS := $(call lib,interpose/core) $(call lib,dmt_scheduler)

$(BUILD)/lib/libcrane.so: $(SHIM_OBJS) interpose/exports.map $(call made_with,libcrane,$(LDFLAGS) $(SHIM_LD) $(SHIM_OBJS))
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) $(SHIM_LD) -Wl,--version-script=interpose/exports.map -o $@ $(SHIM_OBJS) -ldl -pthread

LINKED_WITH := $(call made_with,link,$(LDFLAGS) $(LINKLIBS) $(SYSLIBS))
define program_rule
$(BUILD)/bin/$(subst _,-,$(notdir $(1))): $(BUILD)/obj/$(1)_main.o $(LIBS) $(LINKED_WITH)
	@mkdir -p $$(@D)
	$(CXX) $$(LDFLAGS) -o $$@ $$< $$(LINKLIBS) $$(SYSLIBS)
endef
$(foreach p,$(PROGRAMS),$(eval $(call program_rule,$(p))))
# pid 1 of every container depends on nothing that the container may hold.
$(BUILD)/bin/crane-init: LINKLIBS := $(BUILD)/lib/libcheckpoint.a
$(BUILD)/bin/crane-init: SYSLIBS  := -lseccomp
$(BUILD)/bin/crane-init: LDFLAGS  += $(if $(SAN),,-static)
# Started for one dump, while a server waits: nothing to load.
$(BUILD)/bin/crane-criu: LINKLIBS := $(BUILD)/lib/libcheckpoint.a
$(BUILD)/bin/crane-criu: SYSLIBS  :=
$(BUILD)/bin/crane-criu: LDFLAGS  += $(if $(SAN),,-static)

$(BUILD)/bin/unit: $(UNIT_OBJS) $(LIBS) $(UNIT_LIBS) $(LINKED_WITH) $(call made_with,unit,$(UNIT_OBJS))
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) -o $@ $(UNIT_OBJS) $(UNIT_LIBS) $(LINKLIBS) $(SYSLIBS)

# The simulator of the consensus part: its own program, not installed.
SIM_OBJS := $(patsubst %.cpp,$(BUILD)/obj/%.o,$(wildcard tests/sim/*.cpp))
SIM      := $(BUILD)/bin/sim --known tests/sim/seeds.txt
$(BUILD)/bin/sim: $(SIM_OBJS) $(BUILD)/lib/libpaxos.a $(LINKED_WITH) $(call made_with,sim,$(SIM_OBJS))
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) -o $@ $(SIM_OBJS) $(BUILD)/lib/libpaxos.a -ldb -lxxhash -levent -lspdlog -lfmt -pthread

# make sim: the amount of continuous integration; SEED=7 tells one life in full, SEEDS=100 leads fewer.
.PHONY: sim sim-canaries
sim: $(BUILD)/bin/sim
	$(if $(SEED),$(BUILD)/bin/sim --seed $(SEED) -v,$(SIM) $(if $(SEEDS),--seeds $(SEEDS)))
sim-canaries: $(BUILD)/bin/sim
	$(BUILD)/bin/sim --canaries

# What the unit tests start, besides craned and crane-init.
UNIT_RUNS := $(BUILD)/bin/crane-criu $(BUILD)/bin/craned $(BUILD)/bin/fake-domain $(BUILD)/lib/libcrane.so \
             $(BUILD)/programs/image_counter
unit: $(BUILD)/bin/unit $(if $(wildcard checkpoint/crane_init_main.cpp),$(BUILD)/bin/crane-init) \
      $(UNIT_RUNS)
	$(BUILD)/bin/unit

unit-py:
	/usr/bin/python3 -B -m unittest discover -s tests/unit_py

deps:
	@scripts/install_deps.sh $(if $(TEST),--test)

demo:
	@scripts/demo.sh

# --- installing -------------------------------------------------------------------------------------
# Programs find each other below PREFIX/lib/crane by their own location; bin holds links to them.
PREFIX   ?= /usr/local
DESTDIR  ?=
ROOTLIB   = $(DESTDIR)$(PREFIX)/lib/crane
MANPAGES := $(wildcard docs/man/*.1 docs/man/*.8)
COMMANDS := crane crane-run craned
DOCS      = $(DESTDIR)$(PREFIX)/share/doc/crane
COMPLETIONS = $(DESTDIR)$(PREFIX)/share/bash-completion/completions

install: all
	install -d $(ROOTLIB)/bin $(ROOTLIB)/crane_launch $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(addprefix $(BUILD)/bin/,craned crane crane-init crane-criu) $(ROOTLIB)/bin/
	install -m 644 $(BUILD)/lib/libcrane.so VERSION $(ROOTLIB)/
	install -m 755 scripts/crane scripts/crane-run scripts/trace_diff.py scripts/install_deps.sh scripts/install_criu.sh $(ROOTLIB)/
	install -D -m 644 -t $(ROOTLIB)/criu checkpoint/criu/*.patch
	install -m 644 scripts/crane_launch/*.py $(ROOTLIB)/crane_launch/
	install -D -m 644 -t $(ROOTLIB)/core interpose/core/operation.hpp interpose/core/objects.hpp
	install -d $(ROOTLIB)/profiles
	install -m 644 scripts/profiles/*.toml $(ROOTLIB)/profiles/
	$(foreach c,$(COMMANDS),ln -sf ../lib/crane/$(if $(filter craned,$(c)),bin/)$(c) $(DESTDIR)$(PREFIX)/bin/$(c);)
	install -d $(DOCS)/examples $(DOCS)/monitoring
	install -m 644 $(addprefix docs/examples/,haproxy.cfg keepalived.conf) $(DOCS)/examples/
	sed 's|/usr/local/lib/crane|$(PREFIX)/lib/crane|' docs/examples/craned.toml | install -m 644 /dev/stdin $(DOCS)/examples/craned.toml
	install -m 644 $(addprefix scripts/monitoring/,alerts.yml prometheus.yml grafana.json) docs/alarms.md docs/monitoring.md $(DOCS)/monitoring/
	install -D -m 644 scripts/packaging/completion.bash $(COMPLETIONS)/crane
	$(foreach c,$(filter-out crane,$(COMMANDS)),ln -sf crane $(COMPLETIONS)/$(c);)
	$(foreach m,$(MANPAGES),install -D -m 644 $(m) $(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m));)

uninstall:
	rm -rf $(ROOTLIB) $(DOCS)
	rm -f $(foreach c,$(COMMANDS),$(DESTDIR)$(PREFIX)/bin/$(c) $(COMPLETIONS)/$(c))
	rm -f $(foreach m,$(MANPAGES),$(DESTDIR)$(PREFIX)/share/man/man$(subst .,,$(suffix $(m)))/$(notdir $(m)))

# Debian packages, in $(BUILD)/deb: crane and crane-dbgsym, looked at by lintian.
.PHONY: deb
deb: all
	OPT="$(OPT)" scripts/packaging/make_deb.sh $(BUILD) "$(OPT)"

# The package on three system containers of a clean Debian 12, by the playbooks: make deploy-test DEPLOY=--all
# What it takes, which is kept: make deploy-hosts.
.PHONY: deploy-test deploy-hosts
deploy-hosts: deb
	BUILD=$(BUILD) /usr/bin/python3 -B tests/deploy/deploy.py --hosts-only

deploy-test:
	scripts/install_deps.sh --deploy
	$(MAKE) deb
	BUILD=$(BUILD) OPT="$(OPT)" /usr/bin/python3 -B tests/deploy/deploy.py $(DEPLOY)

help:
	@echo "make            build everything into $(BUILD)/"
	@echo "make demo       install what is missing, then show three replicas of Apache"
	@echo "make test       install what is missing, then run the unit and end-to-end tests"
	@echo "make unit       unit tests alone"
	@echo "make e2e        end-to-end tests alone, on what is built; TESTS=\"redis failover\" selects"
	@echo "make spec       check the consensus protocol's model with spin: every state, and planted bugs (paxos/spec)"
	@echo "make sim        many simulated lives of the consensus part; SEED=7 tells one in full, SEEDS=100 for fewer"
	@echo "make sim-canaries  planted protocol bugs, each of which the simulator must notice"
	@echo "make nemesis    faults against three real replicas, checked for linearizability; NEMESIS=\"--seed 7\""
	@echo "make hostile    hostile clients and faults against a real server; HOSTILE=\"--server apache --seconds 600\""
	@echo "make kills      deaths at every step of checkpoints and restarts; KILLS=\"--seed 7 --rounds 50\""
	@echo "make takes      checkpoints of eleven servers at work, and restores of them; TAKES=\"--takes 5 redis java\""
	@echo "make conformance LTP=DIR  the Open POSIX Test Suite of a checkout of the Linux Test Project"
	@echo "make suites POSTGRES=DIR REDIS=DIR  the servers' own tests, from their sources, natively and on three replicas"
	@echo "make matrix     servers of many kinds, each natively and on three replicas; MATRIX=\"--seeds 2 dns haproxy\""
	@echo "make million    a million requests, and how soon a replica is back before and after them"
	@echo "make soak       what depends on chance, with new seeds, until stopped; ROUNDS=1 MINUTES=30; make soak-sim: the simulator alone"
	@echo "make bench      the evaluation: native against Crane, side by side; BENCH=--quick"
	@echo "make failover   kills of the primary under load, timed; FAILOVER=--saturate counts false elections"
	@echo "make bench-paxos  consensus alone against etcd; BENCH=--quick"
	@echo "make lint       formatting and style"
	@echo "make fuzz       the decoders of what peers send, under libFuzzer; FUZZ_SECONDS=60 for each"
	@echo "make tidy       clang-tidy over what has changed since it found nothing; ALL=1 for the whole tree"
	@echo "make sanitize   unit tests under ASan with UBSan (asan) and TSan (tsan), in builds of their own"
	@echo "make coverage   which lines the unit tests run; COVERAGE_TESTS=\"cli redis\" adds end-to-end tests"
	@echo "make deps       install what building and running needs (TEST=1: what the tests need, too)"
	@echo "make unit-py    tests of the launcher scripts"
	@echo "make install    into PREFIX (default /usr/local), below DESTDIR; make uninstall undoes it"
	@echo "make deb        Debian packages, in $(BUILD)/deb (scripts/install_deps.sh --package brings what that needs)"
	@echo "make deploy-test  the packages on three hosts by ansible, used, upgraded, rebooted, replaced; DEPLOY=--all: everything"
	@echo "make format     clang-format over the tree"
	@echo "make clean      remove $(BUILD)/"

# --- tests and evaluation ------------------------------------------------------------------------
TEST_PROGRAMS := $(patsubst tests/programs/%,$(BUILD)/programs/%,$(basename $(wildcard tests/programs/*.c tests/programs/*.cpp)))
LOADS         := $(patsubst eval/load/%.c,$(BUILD)/load/%,$(wildcard eval/load/*.c))
TEST_CC       := $(CC) -D_GNU_SOURCE -std=gnu17 -O2 -g $(WARN) -pthread
RUN_TESTS     := BUILD=$(BUILD) python3 tests/e2e/run.py

.PHONY: programs test e2e spec nemesis hostile kills takes conformance suites matrix million soak bench failover bench-paxos lint
programs: $(TEST_PROGRAMS) $(LOADS) $(BUILD)/bin/nemesis-checker $(BUILD)/lib/host-clock.so
# Preloaded into craned, it sets a host's clock wrong.
$(BUILD)/lib/host-clock.so: tests/nemesis/host_clock.c
	@mkdir -p $(@D)
	$(TEST_CC) -shared -fPIC -o $@ $<
# What it stands on is in vendor/: nothing is fetched.
GO ?= go
CHECKER := tests/nemesis/checker
$(BUILD)/bin/nemesis-checker: $(shell find $(CHECKER) -name '*.go') $(CHECKER)/go.mod
	@mkdir -p $(@D)
	cd $(CHECKER) && GOFLAGS= CGO_ENABLED=0 $(GO) build -mod=vendor -buildvcs=false -o $(abspath $@) .
$(BUILD)/programs/static_server $(BUILD)/programs/static_tool: TEST_CC += -static
$(BUILD)/programs/fork_module: TEST_CC += -shared -fPIC
C_MADE_WITH := $(call made_with,programs,$(TEST_CC))
$(BUILD)/programs/%: tests/programs/%.c $(wildcard tests/programs/*.h) $(C_MADE_WITH)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -lm
$(BUILD)/programs/%: tests/programs/%.cpp $(COMPILED_WITH)
	@mkdir -p $(@D)
	$(CXX) $(CXXFLAGS) -o $@ $<
$(BUILD)/load/%: eval/load/%.c $(C_MADE_WITH)
	@mkdir -p $(@D)
	$(TEST_CC) -o $@ $< -lm

# Dependencies come first, then the build in a make of its own, which sees what was installed.
test:
	scripts/install_deps.sh --test
	$(MAKE) all $(BUILD)/bin/unit $(BUILD)/bin/sim programs
	$(RUN_TESTS) --in-lanes --unit-halves --unit $(BUILD)/bin/unit --sim $(BUILD)/bin/sim $(TESTS)

# What was built, without installing or the unit tests: make e2e TESTS="redis failover"
e2e: programs
	$(RUN_TESTS) $(TESTS)

# The model of the consensus protocol; SPEC=--long for larger bounds, SPEC="--trace BUG" for counterexamples.
spec:
	python3 -B paxos/spec/check.py $(SPEC)

# Faults against three replicas, and a check of what clients saw: make nemesis NEMESIS="--seed 7"
nemesis: all programs
	BUILD=$(BUILD) /usr/bin/python3 -B tests/nemesis/nemesis.py $(NEMESIS)

# Clients that mean no good, and faults, while honest clients are served: make hostile HOSTILE="--server apache"
hostile: all programs
	BUILD=$(BUILD) /usr/bin/python3 -B tests/hostile/hostile.py $(HOSTILE)

# Deaths at every step of checkpoints, restarts and moves to other images: make kills KILLS="--seed 7"
kills: all programs
	BUILD=$(BUILD) /usr/bin/python3 -B tests/kills/kills.py $(KILLS)

# Checkpoints of servers at work, each of which no client may notice: make takes TAKES="--takes 5 redis"
takes: all
	scripts/install_deps.sh --trials
	BUILD=$(BUILD) /usr/bin/python3 -B tests/takes/takes.py $(TAKES)

# The Open POSIX Test Suite, natively and under Crane: make conformance LTP=DIR [CONFORMANCE="--jobs 4 mq_"]
conformance: all
	BUILD=$(BUILD) /usr/bin/python3 -B tests/conformance/conformance.py --ltp $(or $(LTP),missing) $(CONFORMANCE)

# Servers' own tests, natively and under Crane: make suites POSTGRES=DIR MARIADB=1 REDIS=DIR PYTHON=1 LIBUV=DIR
# LIBEVENT=DIR PERL=DIR NGINX=DIR MEMCACHED=DIR [SUITES="--only redis unit/expire"]
suites: all
	BUILD=$(BUILD) /usr/bin/python3 -B tests/suites/suites.py $(if $(POSTGRES),--postgres $(POSTGRES)) \
	  $(if $(MARIADB),--mariadb $(patsubst %,--mariadb-suite %,$(filter-out 1,$(MARIADB)))) \
	  $(if $(REDIS),--redis $(REDIS)) $(if $(PYTHON),--python) $(if $(LIBUV),--libuv $(LIBUV)) $(if $(LIBEVENT),--libevent $(LIBEVENT)) \
	  $(if $(PERL),--perl $(PERL)) $(if $(NGINX),--nginx $(NGINX)) $(if $(MEMCACHED),--memcached $(MEMCACHED)) $(SUITES)

# Servers of many kinds, each with its usual client: make matrix MATRIX="--seeds 2 dns haproxy"
matrix: all
	scripts/install_deps.sh --matrix
	BUILD=$(BUILD) /usr/bin/python3 -B tests/matrix/matrix.py $(MATRIX)

# A million requests, and how soon a replica is back before and after them: make million MILLION="--requests 5000000"
million: all
	BUILD=$(BUILD) /usr/bin/python3 -B tests/takes/million.py $(MILLION)

# Simulated lives until interrupted.
.PHONY: soak-sim
soak-sim: $(BUILD)/bin/sim
	$(BUILD)/bin/sim --soak --first $$(date +%s)000

# The model's larger bounds, elections on a busy machine, the unit tests with all their rounds and the decoders for a
# minute each; then what depends on chance, again and again with new seeds, until it fails or is stopped:
# make soak ROUNDS=1 MINUTES=30
ROUNDS  ?= 0
MINUTES ?= 30
STARTS  ?= 2000
soak: all programs $(BUILD)/bin/sim $(BUILD)/bin/unit
	$(MAKE) tidy ALL=1
	$(MAKE) spec SPEC=--long
	CRANE_SOAK=1 $(BUILD)/bin/unit
	$(MAKE) fuzz
	BUILD=$(BUILD) /usr/bin/python3 -B eval/failover.py --saturate
	BUILD=$(BUILD) /usr/bin/python3 -B eval/starts.py --starts $(STARTS)
	round=0; while [ $$round -eq 0 ] || [ $$round -ne $(ROUNDS) ]; do \
	    round=$$((round + 1)); seed=$$(date +%s); echo "soak: round $$round, seed $$seed"; \
	    $(BUILD)/bin/sim --first $${seed}000 --seeds 5000 && \
	    BUILD=$(BUILD) /usr/bin/python3 -B tests/nemesis/nemesis.py --minutes $(MINUTES) && \
	    for server in apache redis; do BUILD=$(BUILD) /usr/bin/python3 -B tests/hostile/hostile.py --server $$server \
	        --seed $$seed --seconds $$(($(MINUTES) * 30)) || exit 1; done && \
	    BUILD=$(BUILD) /usr/bin/python3 -B tests/kills/kills.py --seed $$seed && \
	    $(MAKE) deploy-test DEPLOY=--all && \
	    CRANE_SOAK=1 $(RUN_TESTS) --seed $$seed disturbance failover MicroBenchmark || exit 1; done

bench: all programs
	scripts/install_deps.sh --test --bench
	BUILD=$(BUILD) /usr/bin/python3 -B eval/bench.py $(BENCH)

# From kill -9 of the primary to the next acknowledged call: make failover FAILOVER="--saturate"
failover: all programs
	BUILD=$(BUILD) /usr/bin/python3 -B eval/failover.py $(FAILOVER)

# Consensus alone, side by side with etcd: make bench-paxos BENCH=--quick
bench-paxos: all
	scripts/install_deps.sh --bench
	$(MAKE) $(BUILD)/load/etcdload
	BUILD=$(BUILD) /usr/bin/python3 -B eval/bench_paxos.py $(BENCH)
# etcd's own client, by the sums in go.sum, from the Go module proxy.
$(BUILD)/load/etcdload: $(wildcard eval/etcdload/*.go) eval/etcdload/go.mod
	@mkdir -p $(@D)
	cd eval/etcdload && GOFLAGS= CGO_ENABLED=0 $(GO) build -buildvcs=false -o $(abspath $@) .

# The parts without a foreign process in them, under the sanitizers, each in a build of its own. The shim
# itself cannot be: a preloaded library comes before the sanitizer's own runtime. TSan knows no fibers, so it
# gets the tests that use kernel threads. g++ takes the standard library's regex for uninitialized under it.
.PHONY: sanitize asan tsan asan-build tsan-build tidy
sanitize: asan tsan
# vptr: its looks into memory take a pipe each, which tests that have no descriptors cannot give. function: it writes
# what is no instruction at the beginning of each, and tests read this program's own code.
ASAN_MAKE = BUILD=$(BUILD)/asan CXX="$(filter ccache,$(CXX)) clang++" OPT="-O1 -g1" \
            SAN="-fsanitize=address,undefined -fno-sanitize=vptr,function -fno-sanitize-recover=all"
asan-build: $(BUILD)/bin/crane-init $(BUILD)/bin/crane-criu $(BUILD)/bin/fake-domain
	$(MAKE) $(ASAN_MAKE) $(BUILD)/asan/bin/unit $(BUILD)/asan/bin/craned $(BUILD)/asan/bin/fuzz
	cp $^ $(BUILD)/asan/bin/  # what runs in the domain has a preloaded library, and so no sanitizer
asan: asan-build $(UNIT_RUNS)
	ASAN_OPTIONS=detect_leaks=0 $(BUILD)/asan/bin/unit
# What threads share, and only that: the rest would be built to run nothing.
TSAN_TESTS := $(patsubst %,tests/unit/%.cpp,catch_runner test_dmt_threads test_paxos_heartbeat_thread test_paxos_lookup test_paxos_name_server \
              test_proxy_rings test_timebubble_rings)
tsan-build:
	$(MAKE) BUILD=$(BUILD)/tsan SAN="-fsanitize=thread -Wno-tsan -Wno-maybe-uninitialized" OPT="-O1 -g1" \
	    UNIT_SRCS="$(TSAN_TESTS)" checkpoint_SRCS= interpose/core_SRCS= proxy/tool_SRCS= proxy_SRCS=proxy/domain_link.cpp \
	    paxos_SRCS="paxos/heartbeat_thread.cpp paxos/link/lookup.cpp paxos/link/peer_address.cpp" $(BUILD)/tsan/bin/unit
tsan: tsan-build
	$(BUILD)/tsan/bin/unit "scheduler: kernel threads*,scheduler: under serial*,rings:*,domain link:*,paxos lookup:*,heartbeat thread:*"

# Which lines the unit tests and the simulator run, of all that is not the guest's: the shim's wrappers run in a server, where
# nothing can be counted, and the end-to-end tests are for them. COVERAGE_TESTS="cli redis" adds end-to-end tests, for what
# craned and the tools then run. The least covered file comes first; build/coverage/report/index.html shows each line.
COVERED      := $(BUILD)/coverage
COVERED_BINS := $(addprefix $(COVERED)/bin/,unit sim craned crane)
.PHONY: coverage coverage-build
coverage-build: all programs $(BUILD)/bin/fake-domain
	$(MAKE) BUILD=$(COVERED) OPT="-O0 -g1" SAN="--coverage -fprofile-update=atomic" $(COVERED_BINS)
	mkdir -p $(COVERED)/lib
	cp $(addprefix $(BUILD)/bin/,crane-init crane-criu fake-domain nemesis-checker) $(COVERED)/bin/  # as under ASan
	cp $(BUILD)/lib/*.so $(COVERED)/lib/
	rm -rf $(COVERED)/programs $(COVERED)/load
	cp -r $(BUILD)/programs $(BUILD)/load $(COVERED)/
coverage:
	scripts/install_deps.sh --coverage
	$(MAKE) coverage-build
	find $(COVERED) -name '*.gcda' -delete
	$(COVERED)/bin/unit
	$(COVERED)/bin/sim --known tests/sim/seeds.txt --seeds 200
	$(if $(COVERAGE_TESTS),BUILD=$(COVERED) python3 tests/e2e/run.py $(COVERAGE_TESTS))
	mkdir -p $(COVERED)/report
	gcovr --root . --object-directory $(COVERED) --exclude-unreachable-branches --exclude 'tests/.*' --sort-percentage \
	    --html-details $(COVERED)/report/index.html --txt $(COVERED)/report/lines.txt $(COVERED)/obj
	cat $(COVERED)/report/lines.txt
	@echo "nothing runs:"; awk '$$4 == "0%" { print "  " $$1 }' $(COVERED)/report/lines.txt

# The decoders of what peers say, under libFuzzer: every target for FUZZ_SECONDS, from the kept corpus. What is
# found stays in $(BUILD)/fuzz/found; `make fuzz-keep` takes new inputs into the corpus, as few as it takes.
FUZZ_SECONDS ?= 60
FUZZ_TARGETS ?= $(notdir $(wildcard tests/fuzz/corpus/*))
FUZZ_RUN      = CRANE_FUZZ_TARGET=$$target $(BUILD)/asan/bin/fuzz -max_len=4096 -rss_limit_mb=1024 -timeout=10 -verbosity=0
.PHONY: fuzz fuzz-build fuzz-keep
fuzz-build:
	$(MAKE) $(ASAN_MAKE) $(BUILD)/asan/bin/fuzz
$(BUILD)/bin/fuzz: $(FUZZ_OBJS) $(LINKED_WITH)
	@mkdir -p $(@D)
	$(CXX) $(LDFLAGS) -fsanitize=fuzzer -o $@ $(FUZZ_OBJS) $(SYSLIBS)
fuzz: fuzz-build
	@for target in $(FUZZ_TARGETS); do \
	    echo "fuzz: $$target, $(FUZZ_SECONDS) s"; \
	    mkdir -p $(BUILD)/fuzz/new/$$target $(BUILD)/fuzz/found; \
	    $(FUZZ_RUN) -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 \
	        -artifact_prefix=$(BUILD)/fuzz/found/$$target- \
	        $(BUILD)/fuzz/new/$$target tests/fuzz/corpus/$$target >$(BUILD)/fuzz/$$target.log 2>&1 || \
	        { tail -n 40 $(BUILD)/fuzz/$$target.log; exit 1; }; \
	    grep -E "number_of_executed_units|new_units_added" $(BUILD)/fuzz/$$target.log; \
	done
fuzz-keep: fuzz-build
	@for target in $(FUZZ_TARGETS); do \
	    mkdir -p $(BUILD)/fuzz/new/$$target; \
	    rm -rf $(BUILD)/fuzz/kept; mkdir -p $(BUILD)/fuzz/kept; \
	    $(FUZZ_RUN) -merge=1 -use_counters=0 $(BUILD)/fuzz/kept tests/fuzz/corpus/$$target $(BUILD)/fuzz/new/$$target 2>/dev/null && \
	    find tests/fuzz/corpus/$$target -type f ! -name 'found-*' -delete && \
	    cp $(BUILD)/fuzz/kept/* tests/fuzz/corpus/$$target/; \
	    echo "fuzz: $$target: $$(ls tests/fuzz/corpus/$$target | wc -l) inputs"; \
	done

# What is not as it was when nothing was found in it; ALL=1: everything. TIDY_SRCS="..." selects.
tidy:
	python3 -B .ci/tidy.py $(if $(ALL),--all) $(if $(TIDY_JOBS),--jobs $(TIDY_JOBS)) $(TIDY_SRCS)

lint:
	clang-format --dry-run -Werror $$(git ls-files '*.cpp' '*.hpp')
	python3 tests/e2e/style.py
	if command -v ansible-lint > /dev/null; then cd scripts/ansible && ansible-lint --profile production --offline --nocolor -q; \
	else echo "lint: no ansible-lint, so the playbooks were not looked at (scripts/install_deps.sh --deploy)"; fi

format:
	clang-format -i $$(git ls-files '*.cpp' '*.hpp')

clean:
	rm -rf $(BUILD)

-include $(shell find $(BUILD) -type f -name '*.d' 2>/dev/null)
