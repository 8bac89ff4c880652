// crane: look at and look after a cluster. See docs/man/crane.1.
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/standard_descriptors.hpp"
#include "proxy/tool/tools.hpp"

using namespace crane::proxy;
namespace fs = std::filesystem;

namespace {

/// What is wrong with the command line, as opposed to what could not be done.
class UsageError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

/// What says which cluster elsewhere, and who asks, may stand before the verb.
bool argv_names_cluster(const std::string& word) {
    const std::string name = word.substr(0, word.find('='));
    return name == "--cluster" || name == "--cert" || name == "--key" || name == "--ca";
}

/// A word that is no verb, before the parser asks for one that it does not know either.
void check_verb(const CLI::App& app, int argc, char** argv) {
    std::string known;
    for (const CLI::App* sub : app.get_subcommands({})) {
        known += (known.empty() ? "" : ", ") + sub->get_name();
        if (argc > 1 && sub->get_name() == argv[1]) return;
    }
    if (argc < 2) throw UsageError("say what to do: " + known + " (crane --help)");
    const std::string first = argv[1];
    if (argv_names_cluster(first)) return;
    if (first == "-h" || first == "--help" || first == "--version") return;
    if (first[0] == '-') throw UsageError("the verb comes first; there are " + known);
    throw UsageError("there is no verb " + first + "; there are " + known);
}

/// Starting and stopping is the launcher's business: it alone knows what a crash leaves behind.
[[noreturn]] void run_launcher(char** argv) {
    const fs::path here = fs::read_symlink("/proc/self/exe").parent_path();
    for (const fs::path& script : {here / "../crane", here / "../../scripts/crane"}) {
        std::error_code ignored;
        if (fs::is_regular_file(script, ignored)) execv(script.c_str(), argv);
    }
    throw std::runtime_error(
        "the script crane, which starts and stops clusters, is not there: call it (scripts/crane), or "
        "reinstall");
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
    replace
        ->add_option("--wait", request.wait_s,
                     "seconds to wait for it to catch up, before anything is changed (default: 600)")
        ->check(CLI::Range(0, 86400));
}

void add_checkpoint_verbs(CLI::App& checkpoint, CheckpointRequest& request) {
    checkpoint.require_subcommand(1);
    checkpoint.add_option("--replica", request.replica, "whose (default: all that are here)");
    for (const auto& [name, text] :
         {std::pair{"list", "which there are, how large and how old; what is damaged, what is arriving"},
          {"verify", "read all, and compare with what was written"},
          {"take", "of the server as it runs, by a majority of the replicas"},
          {"restore", "one replica's server is made anew from its newest, and the log behind it"}}) {
        CLI::App* sub = checkpoint.add_subcommand(name, text);
        sub->fallthrough();  // for --state-dir, --replica and --json
        sub->callback([&request, name = name] { request.what = name; });
    }
}

void add_image_verbs(CLI::App& image, ImageRequest& request, bool& json) {
    image.require_subcommand(1);
    const auto verb = [&](const char* name, const char* text) {
        CLI::App* sub = image.add_subcommand(name, text);
        sub->add_flag("--json", json, "for programs");
        if (std::string_view(name) != "make")
            sub->add_option("--store", request.store, "where images are on this host")->capture_default_str();
        sub->callback([&request, name] { request.what = name; });
        return sub;
    };
    CLI::App* make = verb("make", "of a directory tree, or of this host's files, as one file");
    make->add_option("file", request.file, "to be written; must not be there yet")->required();
    make->add_option("--from", request.from, "the tree, such as what debootstrap makes")
        ->capture_default_str();
    make->add_option("--exclude", request.exclude, "leave this path out; may be repeated")
        ->allow_extra_args(false);
    make->add_option("--keep", request.keep, "but not this, which usually is; may be repeated")
        ->allow_extra_args(false);
    verb("add", "put an image into the store of this host")
        ->add_option("file", request.file, "the image")
        ->required();
    verb("list", "which there are");
    verb("verify", "read all, and compare with their names")
        ->add_option("image", request.file, "sha256:… (default: all)");
    verb("remove", "delete one")->add_option("image", request.file, "sha256:…")->required();
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
        issue = ca->add_subcommand("issue",
                                   "make a replica's or an operator's certificate and key, or renew them");
        auto* replica = issue->add_option("--replica", request.replica, "its number");
        issue->add_option("--role", request.role, "of an operator: read, or operate")
            ->check(CLI::IsMember({"read", "operate"}))
            ->excludes(replica);
        issue->add_option("--name", request.name, "of an operator");
        issue->add_option("--out", request.out, "where to (default: DIR/replica-N, DIR/operator-NAME)");
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
        if (*issue && request.role.empty() == (request.replica == 0))
            throw UsageError("say whose: --replica N, or --role read (or operate) and --name NAME");
        if (*issue && request.role.empty() != request.name.empty())
            throw UsageError("an operator has a --role and a --name");
        if (*issue) return tool_ca_issue(request, json);
        if (*show) return tool_ca_show(request, json);
        throw UsageError("say what to do: init, issue or show (crane ca --help)");
    }
};

/// Every verb and its options.
class Commands {
  public:
    Commands() {
        app_.set_version_flag("--version", std::string("crane ") + CRANE_VERSION);
        app_.require_subcommand(1);
        app_.add_option(
            "--cluster", cluster_,
            "a cluster elsewhere: HOST:PORT of a replica's [admin] listen, or several with commas");
        app_.add_option("--cert", credentials_.certificate,
                        "with --cluster: the operator's certificate (crane ca issue --role)");
        app_.add_option("--key", credentials_.key, "with --cluster: its key");
        app_.add_option("--ca", credentials_.authority,
                        "with --cluster: the authority (default: ca.crt beside the certificate)");
        add_questions();
        add_log_verbs();
        add_member_verbs(
            *(member_ = verb("member", "who the replicas are: list, add, promote, remove, replace")),
            members_);
        add_checkpoint_verbs(
            *(checkpoint_ = verb("checkpoint", "the replicas' checkpoints: list, verify, take, restore")),
            checkpoints_);
        add_orders();
        add_backup_verbs();
        image_ = app_.add_subcommand(
            "image", "base images, the files under a server: make, add, list, verify, remove");
        add_image_verbs(*image_, image_request_, json_);
        ca_ = std::make_unique<CaCommands>(app_, json_);
        version_ = verb("version", "the version");
    }

    CLI::App& app() { return app_; }
    bool json() const { return json_; }

    int run(char** argv) {
        go_elsewhere();
        if (*stop_ || *runs_) run_launcher(argv);
        if (ca_->given()) return ca_->run(json_);
        if (*image_) return tool_image(image_request_, json_);
        check_request(state_dir_, compared_, log_request_);
        compared_.wait_for_down = wait_->count() > 0;
        if (*status_) return tool_status(state_dir_, json_);
        if (*top_) return tool_top(state_dir_, top_request_, json_);
        if (*health_) return tool_health(state_dir_, health_request_, json_);
        if (*diff_) return tool_diff(state_dir_, compared_, json_);
        if (*output_) return tool_output(state_dir_, output_request_, json_);
        if (*audit_) return tool_audit(state_dir_, audit_request_, json_);
        if (*verify_) return tool_verify(state_dir_, log_request_.replica, json_);
        if (*log_) return tool_log(state_dir_, log_request_, json_);
        if (*member_) return tool_member(state_dir_, members_, json_);
        if (*checkpoint_) return tool_checkpoint(state_dir_, checkpoints_, json_);
        if (*recover_) return tool_recover(state_dir_, lost_, json_);
        if (*backup_) return tool_backup(state_dir_, backup_request_, json_);
        if (*restore_) return tool_restore(restore_request_, json_);
        if (*check_) return tool_check(program_, json_);
        if (*transfer_) return tool_transfer(state_dir_, to_, json_);
        if (*base_) return tool_base(state_dir_, to_, json_);
        if (*restart_) return tool_restart(state_dir_, restart_request_, json_);
        if (*signal_) return tool_signal(state_dir_, signal_name_, json_);
        if (*version_) printf(json_ ? "{\"version\":\"%s\"}\n" : "crane %s\n", CRANE_VERSION);
        return kExitOk;
    }

  private:
    CLI::App* verb(const char* name, const char* text) {
        CLI::App* sub = app_.add_subcommand(name, text);
        sub->add_option("--state-dir", state_dir_, "the cluster's directory")->capture_default_str();
        sub->add_flag("--json", json_, "for programs");
        sub->fallthrough();  // for --cluster and who asks
        return sub;
    }

    /// Where a cluster elsewhere is meant, and this can be done there.
    void go_elsewhere() {
        if (cluster_.empty() && credentials_.certificate.empty() && credentials_.key.empty()) return;
        if (cluster_.empty()) throw UsageError("--cert and --key are for --cluster HOST:PORT");
        if (credentials_.certificate.empty() || credentials_.key.empty())
            throw UsageError(
                "--cluster needs --cert and --key: crane ca issue --role read (or operate) makes them");
        for (const CLI::App* there :
             {status_, health_, top_, diff_, output_, log_, transfer_, restart_, signal_, member_})
            if (*there && !*verify_) return use_remote();
        if (*checkpoint_ && (checkpoints_.what == "take" || checkpoints_.what == "restore"))
            return use_remote();
        throw UsageError(
            "this is done on a replica's host, where its files are: it does not go with --cluster");
    }
    void use_remote() {
        if (!compared_.logs.empty())
            throw UsageError("diff of logs that are files does not go with --cluster");
        if (compared_.anew)
            throw UsageError("--anew reads the logs themselves, and does not go with --cluster");
        use_credentials(credentials_);
        state_dir_ = remote_place(cluster_);
    }

    void add_questions() {
        status_ = verb("status", "what each replica is doing; exits with 1 if anything is wrong");
        top_ = verb("top", "all replicas of the cluster on a terminal, live; q ends it");
        top_->add_flag("--once", top_request_.once, "print one frame instead");
        top_->add_option("--every", top_request_.every_s, "seconds between two")->check(CLI::Range(1, 3600));
        health_ = verb("health", "one line, for load balancers: can clients be served here?");
        health_->add_flag("--primary", health_request_.primary, "only where the primary is");
        health_->add_option("--replica", health_request_.replica, "which replica (default: any one here)");
        check_ = verb("check", "can this machine, and this program, run under Crane?");
        check_->add_option("program", program_, "the server's command line");
        check_->positionals_at_end();
        check_->fallthrough(false);  // what follows is the program's
    }

    void add_log_verbs() {
        diff_ = verb("diff", "compare the replicas' output logs, byte by byte");
        diff_->add_option("logs", compared_.logs,
                          "output logs, or directories with one (default: all of the state directory)");
        diff_->add_flag("--allow-lag", compared_.allow_lag,
                        "a log that ends before the others is no failure");
        diff_->add_flag("--anew", compared_.anew,
                        "each two of them: who differs from whom, and from where on");
        wait_ =
            diff_->add_option("--wait", compared_.wait_s,
                              "seconds to wait for every replica, also one that is being started, to reach "
                              "what is decided now (default: 10, and not for replicas that are down)");
        wait_->check(CLI::Range(0, 86400));
        output_ = verb("output",
                       "how far the output logs go, and their hash chains there, to compare across hosts");
        output_->add_option("--at", output_request_.at, "behind so many records (default: all)");
        output_->add_option("--replica", output_request_.replica, "whose log (default: all that are here)");
        add_audit();
        log_ = verb("log", "the decided sequence of client calls");
        log_->add_option("--replica", log_request_.replica, "whose log (default: the first)");
        log_->add_option("--from", log_request_.from, "first index");
        log_->add_option("--to", log_request_.to, "last index");
        verify_ = log_->add_subcommand("verify", "check the logs of replicas that do not run");
        verify_->fallthrough();
    }

    void add_audit() {
        audit_ = verb("audit", "compare the outputs of all replicas, wherever they are, and state it signed");
        audit_->add_flag("--follow", audit_request_.follow, "again and again, until it is ended");
        audit_->add_option("--every", audit_request_.every_s, "with --follow: seconds between two")
            ->check(CLI::Range(1, 86400));
        audit_->add_option("--statement", audit_request_.statement,
                           "the file that it is stated in (default: audit.statement in the directory)");
        audit_->add_option("--config", audit_request_.config,
                           "the configuration of a replica here, whose key signs (default: as it is found)");
        audit_->add_option("--verify", audit_request_.verify, "look at this statement, and compare nothing");
        audit_->add_option("--authority", audit_request_.authority,
                           "with --verify: ca.crt, or the public key, that it must be signed by");
    }

    void add_backup_verbs() {
        backup_ = verb("backup", "a checkpoint of the server as it runs, as one file");
        backup_->add_option("file", backup_request_.file, "to be written; must not be there yet")->required();
        backup_->add_option("--config", backup_request_.config,
                            "the configuration of a replica here (default: craned.toml in its directory)");
        auto* newest = backup_->add_flag("--newest", backup_request_.newest,
                                         "of the newest checkpoint that there is, without taking one");
        backup_
            ->add_option(
                "--entry", backup_request_.entry,
                "of the checkpoint of this log entry (crane checkpoint list), as the server was then")
            ->check(CLI::PositiveNumber)
            ->excludes(newest);
        restore_ =
            app_.add_subcommand("restore", "what a replica of a new cluster begins with, from a backup");
        restore_->add_option("file", restore_request_.file, "the backup")->required();
        restore_->add_option("--config", restore_request_.config, "the new replica's craned.toml")
            ->required();
        restore_->add_flag("--json", json_, "for programs");
    }

    void add_orders() {
        stop_ = verb("stop", "end the cluster");
        runs_ = app_.add_subcommand("verify",
                                    "run a program several times under disturbance, and compare the runs");
        runs_->prefix_command();
        recover_ = verb("recover", "go on with one replica after the loss of a majority");
        recover_->add_flag("--force-new-cluster", lost_.force_new_cluster,
                           "yes: the others are lost, and what only they had, too; this cannot be undone");
        recover_->add_option("--replica", lost_.replica, "whose log (default: the one that goes furthest)");
        transfer_ = verb("transfer", "make another replica primary");
        transfer_->add_option("replica", to_, "its number")->required();
        base_ = verb("base", "whose state counts where replicas differ and no majority agrees");
        base_->add_option("replica", to_, "its number; all others begin from a checkpoint of it")->required();
        restart_ = verb("restart", "end the server and start another one on its files, on all replicas");
        restart_->add_option("--image", restart_request_.image,
                             "on another base image from then on: a file, or sha256:…");
        restart_
            ->add_option("--within", restart_request_.within_s,
                         "how many seconds it has to end by itself (default: stop_s, 90)")
            ->check(CLI::Range(1u, 86'400u));
        signal_ = verb("signal", "send a signal to the server, at the same point on all replicas");
        signal_->add_option("signal", signal_name_, "its name or number: HUP, SIGUSR1, RTMIN+3, 15")
            ->required();
    }

    CLI::App app_{"crane looks after a cluster that crane-run started", "crane"};
    std::string state_dir_ = default_state_dir();
    std::string cluster_;
    RemoteCredentials credentials_;
    bool json_ = false;
    CLI::App *status_, *health_, *check_, *diff_, *log_, *verify_, *member_, *checkpoint_, *output_;
    CLI::App *stop_, *runs_, *recover_, *backup_, *restore_, *transfer_, *restart_, *signal_, *version_;
    CLI::App *image_, *base_, *audit_, *top_;
    CLI::Option* wait_;
    ImageRequest image_request_;
    RestartRequest restart_request_;
    std::unique_ptr<CaCommands> ca_;
    HealthRequest health_request_;
    DiffRequest compared_;
    LogRequest log_request_;
    OutputRequest output_request_;
    AuditRequest audit_request_;
    TopRequest top_request_;
    MemberRequest members_;
    CheckpointRequest checkpoints_;
    RecoverRequest lost_;
    BackupRequest backup_request_;
    RestoreRequest restore_request_;
    std::vector<std::string> program_;
    uint32_t to_ = 0;
    std::string signal_name_;
};

}  // namespace

int main(int argc, char** argv) {
    crane::open_missing_descriptors();
    Commands commands;
    try {
        check_verb(commands.app(), argc, argv);
        commands.app().parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return commands.app().exit(error);  // --help
        return fail(std::string(error.what()) + " (crane --help, crane VERB --help)", false);
    } catch (const UsageError& error) {
        return fail(error.what(), false);
    }
    try {
        return commands.run(argv);
    } catch (const std::exception& error) {
        return fail(error.what(), commands.json());
    }
}
