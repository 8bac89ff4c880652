// crane: look at and look after a cluster. See docs/man/crane.1.
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "proxy/tools.hpp"

using namespace crane::proxy;

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
    std::vector<std::string> paths;
    bool allow_lag = false;
    bool same_end = false;
    diff->add_option("logs", paths,
                     "output logs, or directories with one (default: all of the state directory)");
    auto* lag_flag =
        diff->add_flag("--allow-lag", allow_lag, "a log that ends before the others is no failure");
    diff->add_flag("--same-end", same_end, "all logs must end alike (the default)")->excludes(lag_flag);
    CLI::App* log = verb("log", "the decided sequence of client calls");
    LogRequest request;
    log->add_option("--replica", request.replica, "whose log (default: the first)");
    log->add_option("--from", request.from, "first index");
    log->add_option("--to", request.to, "last index");
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
    CLI::App* version = verb("version", "the version");
    CLI11_PARSE(app, argc, argv);
    try {
        if (*status) return tool_status(state_dir, json);
        if (*stop) return tool_stop(state_dir, json);
        if (*diff) return tool_diff(state_dir, paths, allow_lag, json);
        if (*log) return tool_log(state_dir, request, json);
        if (*check) return tool_check(program, json);
        if (*transfer) return tool_transfer(state_dir, to, json);
        if (*signal) return tool_signal(state_dir, number, json);
        if (*version) printf(json ? "{\"version\":\"%s\"}\n" : "crane %s\n", CRANE_VERSION);
        return kExitOk;
    } catch (const std::exception& error) {
        if (json) {
            printf("%s\n", nlohmann::json{{"error", error.what()}}.dump().c_str());
        } else {
            fprintf(stderr, "crane: %s\n", error.what());
        }
        return kExitError;
    }
}
