// The simulator of the consensus part: many lives of simulated clusters, each from one seed (world.hpp says
// what is simulated, checks.hpp what must hold).
//
// usage: sim                      the amount of continuous integration: known seeds, then SEEDS lives
//        sim --seed N [-v] [--canary NAME]   one life; -v: all that happens; NAME: with that bug
//        sim --canaries           planted bugs, each of which must be noticed
//        sim --soak [--first N]   on and on, with new seeds, until interrupted or something is found
//   --seeds COUNT (1000), --first N (1), --steps N (10000), --jobs N (all cores), --known FILE
// The last line is `N passed, N failed`; the exit status is 0 only if nothing failed.
#include <spdlog/spdlog.h>
#include <sys/personality.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "disk.hpp"
#include "runner.hpp"

using namespace crane::sim;

namespace {

struct Options {
    std::optional<uint64_t> seed;
    uint64_t first = 1, seeds = 1'000;
    bool verbose = false, canaries = false, soak = false;
    std::string known;
    RunSettings run;
};

struct Tally {
    unsigned passed = 0, failed = 0;

    void part(const std::string& name, bool ok) {
        (ok ? passed : failed) += 1;
        std::printf("sim: %s: %s\n", name.c_str(), ok ? "ok" : "FAILED");
        std::fflush(stdout);
    }
};

void print_violation(const LifeResult& life) {
    std::printf("sim: seed %lu: %s\n     replay it with: make sim SEED=%lu\n",
                static_cast<unsigned long>(life.seed), life.violation.c_str(),
                static_cast<unsigned long>(life.seed));
    std::fflush(stdout);
}

// False when something was found. `progress`: a line now and then.
bool lead(const RunSettings& settings, const std::vector<uint64_t>* seeds, uint64_t first, uint64_t count,
          bool progress, Counts& total) {
    uint64_t given = 0, ended = 0, bad = 0;
    const uint64_t all = seeds != nullptr ? seeds->size() : count;
    run_lives(
        settings,
        [&](uint64_t& seed) {
            if (given == all) return false;
            seed = seeds != nullptr ? (*seeds)[given] : first + given;
            ++given;
            return true;
        },
        [&](const LifeResult& life) {
            ++ended;
            total.add(life.counts);
            if (!life.violation.empty()) {
                ++bad;
                print_violation(life);
            }
            if (progress && ended % 250 == 0) {
                std::printf("sim: %lu lives, %lu with a violation\n", static_cast<unsigned long>(ended),
                            static_cast<unsigned long>(bad));
                std::fflush(stdout);
            }
            return bad < 10;
        });
    return bad == 0 && ended == all;
}

// Whether everything that can happen has happened.
bool covered(Counts& total) {
    bool all = true;
    for (size_t i = 0; i < Counts::kSize; ++i)
        if (total.numbers()[i] == 0) {
            std::printf("sim: never happened: %s\n", Counts::name(i));
            all = false;
        }
    return all;
}

std::vector<uint64_t> read_seeds(const std::string& path) {
    std::vector<uint64_t> seeds;
    std::ifstream file(path);
    if (!file) {
        std::fprintf(stderr, "sim: cannot read %s\n", path.c_str());
        std::exit(2);
    }
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        for (uint64_t seed = 0; words >> seed;) seeds.push_back(seed);
    }
    return seeds;
}

void run_canaries(const Options& options, Tally& tally) {
    for (const NamedCanary& canary : canaries()) {
        RunSettings settings = options.run;
        settings.canary = &canary;
        uint64_t given = 0, ended = 0;
        LifeResult caught;
        run_lives(
            settings,
            [&](uint64_t& seed) {
                seed = ++given;
                return given <= canary.within_seeds;
            },
            [&](const LifeResult& life) {
                ++ended;
                if (!life.violation.empty()) caught = life;
                return life.violation.empty();
            });
        if (!caught.violation.empty())
            std::printf(
                "     after %lu lives, seed %lu: %s\n", static_cast<unsigned long>(ended),
                static_cast<unsigned long>(caught.seed),
                caught.violation.substr(0, std::min<size_t>(caught.violation.find('\n'), 160)).c_str());
        tally.part("canary: " + canary.name, !caught.violation.empty());
    }
}

void run_amount(const Options& options, Tally& tally) {
    Counts total;
    if (!options.known.empty()) {
        const std::vector<uint64_t> known = read_seeds(options.known);
        tally.part(std::to_string(known.size()) + " known seeds",
                   lead(options.run, &known, 0, 0, false, total));
    }
    RunSettings twice = options.run;
    twice.twice = true;
    tally.part("the same seed leads the same life", lead(twice, nullptr, options.first, 20, false, total));
    total = Counts{};
    tally.part(std::to_string(options.seeds) + " lives of " + std::to_string(options.run.steps) + " steps",
               lead(options.run, nullptr, options.first, options.seeds, true, total));
    std::printf("sim: %s\n", total.text().c_str());
    if (options.seeds >= 1'000) tally.part("everything that can happen has happened", covered(total));
}

int run_soak(const Options& options) {
    Counts total;
    for (uint64_t first = options.first;; first += 1'000) {
        if (!lead(options.run, nullptr, first, 1'000, false, total)) return 1;
        std::printf("sim: seeds up to %lu: %s\n", static_cast<unsigned long>(first + 999),
                    total.text().c_str());
        std::fflush(stdout);
    }
}

int run_one(const Options& options) {
    const LifeResult life = lead_life(*options.seed, options.run, options.verbose);
    LifeResult result = life;
    std::printf("sim: seed %lu, trace %016lx: %s\nsim: %s\n", static_cast<unsigned long>(life.seed),
                static_cast<unsigned long>(life.trace),
                life.violation.empty() ? "no violation" : life.violation.c_str(),
                result.counts.text().c_str());
    return life.violation.empty() ? 0 : 1;
}

[[noreturn]] void usage(const char* wrong) {
    std::fprintf(
        stderr,
        "sim: %s\nusage: sim [--seed N [-v] | --canaries | --soak] [--first N] [--seeds COUNT] [--steps N] "
        "[--jobs N] [--known FILE]\n",
        wrong);
    std::exit(2);
}

const NamedCanary* find_canary(const std::string& name) {
    for (const NamedCanary& canary : canaries())
        if (canary.name == name) return &canary;
    usage(("no such canary: " + name).c_str());
}

Options parse(int argc, char** argv) {
    Options options;
    options.run.jobs = std::max(1u, std::thread::hardware_concurrency());
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        auto value = [&] {
            if (++i == argc) usage("a value is missing");
            return std::string(argv[i]);
        };
        auto number = [&] {
            const std::string text = value();
            uint64_t read = 0;
            const char* end = text.data() + text.size();
            const auto [rest, error] = std::from_chars(text.data(), end, read);
            if (error != std::errc() || rest != end) usage((word + " needs a number, not " + text).c_str());
            return read;
        };
        if (word == "--seed")
            options.seed = number();
        else if (word == "-v")
            options.verbose = true;
        else if (word == "--canaries")
            options.canaries = true;
        else if (word == "--canary")
            options.run.canary = find_canary(value());
        else if (word == "--soak")
            options.soak = true;
        else if (word == "--first")
            options.first = number();
        else if (word == "--seeds")
            options.seeds = number();
        else if (word == "--steps")
            options.run.steps = number();
        else if (word == "--jobs")
            options.run.jobs = std::max(1u, static_cast<unsigned>(number()));
        else if (word == "--known")
            options.known = value();
        else
            usage(("unknown: " + word).c_str());
    }
    return options;
}

// Berkeley DB makes the ids of files from addresses, among other things, and they get onto the disk: the same
// seed leads the same life only where the same things lie at the same addresses.
void fix_addresses(char** argv) {
    const int now = personality(0xffffffff);
    if (now < 0 || (now & ADDR_NO_RANDOMIZE) != 0) return;
    if (personality(static_cast<unsigned long>(now) | ADDR_NO_RANDOMIZE) >= 0) execv("/proc/self/exe", argv);
    std::fprintf(stderr, "sim: addresses are random here (%s): a seed may not lead the same life twice\n",
                 std::strerror(errno));
}

}  // namespace

int main(int argc, char** argv) {
    fix_addresses(argv);
    const Options options = parse(argc, argv);
    install_disk_hooks();
    spdlog::set_level(spdlog::level::off);  // failing disks are what it is about
    if (options.seed) return run_one(options);
    if (options.soak) return run_soak(options);
    Tally tally;
    if (options.canaries)
        run_canaries(options, tally);
    else
        run_amount(options, tally);
    std::printf("%u passed, %u failed\n", tally.passed, tally.failed);
    return tally.failed == 0 ? 0 : 1;
}
