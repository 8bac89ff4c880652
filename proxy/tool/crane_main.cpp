// crane: look at and look after a cluster. See docs/man/crane.1.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "proxy/tool/tools.hpp"

using namespace crane::proxy;
namespace fs = std::filesystem;

namespace {

/// What is wrong with the command line, as opposed to what could not be done.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// A word that is no verb, before the parser asks for one that it does not know either.
void check_verb(const CLI::App& app, int argc, char** argv) {
    std::string known;
    for (const CLI::App* sub : app.get_subcommands({})) {
        known += (known.empty() ? "" : ", ") + sub->get_name();
        if (argc > 1 && sub->get_name() == argv[1]) return;
    }
    if (argc < 2) throw UsageError("say what to do: " + known + " (crane --help)");
    const std::string first = argv[1];
    if (first == "-h" || first == "--help" || first == "--version") return;
    if (first[0] == '-') throw UsageError("the verb comes first; there are " + known);
    throw UsageError("there is no verb " + first + "; there are " + known);
}

/// Stopping is the launcher's business: it alone knows what a crash leaves behind.
[[noreturn]] void run_launcher(char** argv) {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    for (const fs::path& script : {here / "../crane", here / "../../scripts/crane"}) {
        std::error_code ignored;
        if (fs::is_regular_file(script, ignored)) execv(script.c_str(), argv);
    }
    throw std::runtime_error(
        "the script crane, which stops clusters, is not there: call it (scripts/crane), or reinstall");
}

void check_request(const std::string& state_dir, const DiffRequest& compared, const LogRequest& request) {
    if (state_dir.empty())
        throw UsageError("--state-dir is empty: give a directory, or leave it out for the default");
    for (const std::string& log : compared.logs) {
        std::error_code error;
        if (!fs::exists(log, error))
            throw UsageError(log + (error ? ": " + error.message() : " does not exist"));
    }
    if (request.from > request.to) {
        throw UsageError("--from " + std::to_string(request.from) + " is behind --to " +
                         std::to_string(request.to) + ": nothing can lie between");
    }
}

void add_member_verbs(CLI::App& member, MemberRequest& request) {
    member.require_subcommand(1);
    const auto verb = [&](const char* name, const char* text) {
        CLI::App* sub = member.add_subcommand(name, text);
        sub->fallthrough();  // for --state-dir and --json
        sub->callback([&request, name] { request.what = name; });
        return sub;
    };
    verb("list", "who they are, and what is seen of them");
    CLI::App* add = verb("add", "a learner, which gets the log and does not vote");
    add->add_option("address", request.address, "where it listens for the others: HOST:PORT")->required();
    add->add_option("--id", request.id, "its number (default: the next that was never used)");
    verb("promote", "a learner that has caught up votes from now on")
        ->add_option("replica", request.id, "its number")
        ->required();
    verb("remove", "for good: its number is not used again")
        ->add_option("replica", request.id, "its number")
        ->required();
    CLI::App* replace = verb("replace", "remove one, and let a learner vote in its place");
    replace->add_option("replica", request.id, "the number of the one that goes")->required();
    replace->add_option("newcomer", request.by, "the number of the learner")->required();
}

int fail(const std::string& what, bool json) {
    if (json) {
        printf("%s\n", nlohmann::json{{"error", what}}.dump().c_str());
    } else {
        fprintf(stderr, "crane: %s\n", what.c_str());
    }
    return kExitError;
}

/// `crane ca`: three verbs of its own, which concern no cluster that runs.
struct CaCommands {
    CLI::App *all, *init, *issue, *show;
    CaRequest request;

    CaCommands(CLI::App& app, bool& json) {
        CLI::App* ca = all =
            app.add_subcommand("ca", "the certificates by which replicas on different hosts know each other");
        ca->require_subcommand(0, 1);
        init = ca->add_subcommand(
            "init", "make the cluster's authority: ca.crt, and ca.key, which is to stay secret");
        init->add_option("--cluster", request.cluster, "the cluster_id of craned.toml")->required();
        issue = ca->add_subcommand("issue", "make a replica's certificate and key, or renew them");
        issue->add_option("--replica", request.replica, "its number")->required();
        issue->add_option("--out", request.out, "where to (default: DIR/replica-N)");
        show = ca->add_subcommand("show", "whose certificates there are, and how long they are valid");
        show->add_option("files", request.files, "certificates (default: those in DIR)");
        for (CLI::App* sub : {init, issue, show}) {
            auto* dir = sub->add_option("--dir", request.dir, "the authority's directory");
            if (sub != show) {
                dir->required();
                sub->add_option("--days", request.days, "how long it is to be valid")
                    ->check(CLI::Range(1, 36500));
            }
            sub->add_flag("--json", json, "for programs");
        }
    }
    bool given() const { return static_cast<bool>(*all); }
    int run(bool json) const {
        if (*init) return tool_ca_init(request, json);
        if (*issue) return tool_ca_issue(request, json);
        if (*show) return tool_ca_show(request, json);
        throw UsageError("say what to do: init, issue or show (crane ca --help)");
    }
};

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"crane looks after a cluster that crane-run started", "crane"};
    app.set_version_flag("--version", std::string("crane ") + CRANE_VERSION);
    app.require_subcommand(1);
    std::string state_dir = default_state_dir();
    bool json = false;
    const auto verb = [&](const char* name, const char* text) {
        CLI::App* sub = app.add_subcommand(name, text);
        sub->add_option("--state-dir", state_dir, "the cluster's directory")->capture_default_str();
        sub->add_flag("--json", json, "for programs");
        return sub;
    };
    CLI::App* status = verb("status", "what each replica is doing");
    CLI::App* stop = verb("stop", "end the cluster");
    CLI::App* diff = verb("diff", "compare the replicas' output logs, byte by byte");
    DiffRequest compared;
    diff->add_option("logs", compared.logs,
                     "output logs, or directories with one (default: all of the state directory)");
    diff->add_flag("--allow-lag", compared.allow_lag, "a log that ends before the others is no failure");
    auto* wait =
        diff->add_option("--wait", compared.wait_s,
                         "seconds to wait for every replica, also one that is being started, to reach "
                         "what is decided now (default: 10, and not for replicas that are down)");
    wait->check(CLI::Range(0, 86400));
    CLI::App* log = verb("log", "the decided sequence of client calls");
    LogRequest request;
    log->add_option("--replica", request.replica, "whose log (default: the first)");
    log->add_option("--from", request.from, "first index");
    log->add_option("--to", request.to, "last index");
    CLI::App* verify = log->add_subcommand("verify", "check the logs of replicas that do not run");
    verify->fallthrough();
    CLI::App* member = verb("member", "who the replicas are: list, add, promote, remove, replace");
    MemberRequest members;
    add_member_verbs(*member, members);
    CLI::App* recover = verb("recover", "go on with one replica after the loss of a majority");
    RecoverRequest lost;
    recover->add_flag("--force-new-cluster", lost.force_new_cluster,
                      "yes: the others are lost, and what only they had, too; this cannot be undone");
    recover->add_option("--replica", lost.replica, "whose log (default: the one that goes furthest)");
    CLI::App* check = verb("check", "can this machine, and this program, run under Crane?");
    std::vector<std::string> program;
    check->add_option("program", program, "the server's command line");
    check->positionals_at_end();
    CLI::App* transfer = verb("transfer", "make another replica primary");
    uint32_t to = 0;
    transfer->add_option("replica", to, "its number")->required();
    CLI::App* signal = verb("signal", "send a signal to the server, at the same point on all replicas");
    uint32_t number = 0;
    signal->add_option("number", number, "the signal's number, such as 15 or 1")->required();
    CaCommands ca(app, json);
    CLI::App* version = verb("version", "the version");
    try {
        check_verb(app, argc, argv);
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help
        return fail(std::string(error.what()) + " (crane --help, crane VERB --help)", false);
    } catch (const UsageError& error) {
        return fail(error.what(), false);
    }
    try {
        if (*stop) run_launcher(argv);
        if (ca.given()) return ca.run(json);
        check_request(state_dir, compared, request);
        if (*status) return tool_status(state_dir, json);
        compared.wait_for_down = wait->count() > 0;
        if (*diff) return tool_diff(state_dir, compared, json);
        if (*verify) return tool_verify(state_dir, request.replica, json);
        if (*log) return tool_log(state_dir, request, json);
        if (*member) return tool_member(state_dir, members, json);
        if (*recover) return tool_recover(state_dir, lost, json);
        if (*check) return tool_check(program, json);
        if (*transfer) return tool_transfer(state_dir, to, json);
        if (*signal) return tool_signal(state_dir, number, json);
        if (*version) printf(json ? "{\"version\":\"%s\"}\n" : "crane %s\n", CRANE_VERSION);
        return kExitOk;
    } catch (const std::exception& error) {
        return fail(error.what(), json);
    }
}
