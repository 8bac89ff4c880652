// The protocol as text scripts: each file of paxos_scripts/ says what replicas are told, and what they then
// do. CRANE_REWRITE=1 writes what they did into the files; review it like code.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <sstream>

#include "test_paxos_script.hpp"

using namespace crane::paxos::script;

namespace {

// The source tree is where this is built from, or above where the program is.
std::filesystem::path scripts_directory() {
    const std::filesystem::path below = "tests/unit/paxos_scripts";
    for (std::filesystem::path base :
         {std::filesystem::current_path(), std::filesystem::read_symlink("/proc/self/exe").parent_path()}) {
        for (; base.has_relative_path(); base = base.parent_path())
            if (std::filesystem::is_directory(base / below)) return base / below;
    }
    return below;
}

std::string read_file(const std::filesystem::path& path) {
    std::ifstream in(path);
    std::stringstream text;
    text << in.rdbuf();
    return text.str();
}

}  // namespace

TEST_CASE("paxos scripts: what replicas do is what the scripts say") {
    const char* rewrite = std::getenv("CRANE_REWRITE");
    std::set<std::filesystem::path> files;
    for (const auto& file : std::filesystem::directory_iterator(scripts_directory()))
        if (file.path().extension() == ".txt") files.insert(file.path());
    REQUIRE_FALSE(files.empty());
    for (const std::filesystem::path& file : files) {
        const std::string expected = read_file(file);
        const Outcome outcome = run(expected);
        const bool rewriting = rewrite != nullptr && outcome.problem.empty();
        if (rewriting && outcome.text != expected) std::ofstream(file) << outcome.text;
        const std::string differs = rewriting ? "" : difference(expected, outcome.text);
        if (!differs.empty() || !outcome.problem.empty())  // as it is: Catch would break the lines
            std::cerr << file.string() << " (- expected, + happened)\n" << differs << outcome.problem << "\n";
        INFO(file.filename().string());
        CHECK((differs.empty() && outcome.problem.empty()));
    }
}

TEST_CASE("paxos scripts: a transcript that does not fit is shown with what is around it") {
    const std::string script = "cluster 1\nshow\n----\n1: follower\n\n# the end\n";
    const Outcome outcome = run(script);
    REQUIRE(outcome.problem.empty());
    const std::string differs = difference(script, outcome.text);
    REQUIRE_THAT(differs, Catch::Contains("-   1: follower\n"));
    REQUIRE_THAT(differs, Catch::Contains("+   1: leader in view 1.1"));
    REQUIRE_THAT(differs, Catch::Contains("    show\n"));
    REQUIRE(difference(outcome.text, run(outcome.text).text).empty());
}

TEST_CASE("paxos scripts: commands that make no sense are refused") {
    const auto problem = [](const std::string& line) {
        return run("cluster 3\n" + line + "\n----\n").problem;
    };
    REQUIRE_THAT(run("show\n----\n").problem, Catch::Contains("begins with"));
    REQUIRE_THAT(problem("dance"), Catch::Contains("not a command"));
    REQUIRE_THAT(problem("timeout 4"), Catch::Contains("no replica 4"));
    REQUIRE_THAT(problem("timeout"), Catch::Contains("missing"));
    REQUIRE_THAT(problem("deliver 1->2"), Catch::Contains("no such message"));
    REQUIRE_THAT(problem("deliver Prepares"), Catch::Contains("picks no message"));
    REQUIRE_THAT(problem("crash 1 kept"), Catch::Contains("is writing nothing"));
    REQUIRE_THAT(problem("wait 5"), Catch::Contains("not a time"));
    REQUIRE_THAT(run("cluster 3 speed=9\n----\n").problem, Catch::Contains("not a setting"));
}

TEST_CASE("paxos scripts: a broken promise is a failure, whatever the script expects") {
    // The canary: a disk is replaced and the replica does not know. It votes for one that lacks what was
    // decided.
    const Outcome outcome =
        run("cluster 3\nrun 200ms\ncut 2-\npropose 1 a\nsettle\ncrash 3\nlose-disk 3 unmarked\nstart 3\n"
            "heal\ncut 1-\ntimeout 2\nsettle\n----\n");
    REQUIRE_THAT(outcome.problem,
                 Catch::Contains("VIOLATION: 2 delivers 2@2.2 new view but decided was 2@1.1"));
    REQUIRE_THAT(outcome.text, Catch::Contains("VIOLATION"));
}
