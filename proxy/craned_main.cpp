// craned: one replica of a server. See docs/man/craned.1.
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/standard_descriptors.hpp"
#include "checkpoint/confinement.hpp"
#include "checkpoint/fail_point.hpp"
#include "paxos/core/storage.hpp"
#include "paxos/link/tls.hpp"
#include "proxy/client_limit.hpp"
#include "proxy/craned.hpp"
#include "proxy/daemon_log.hpp"
#include "proxy/log_durability.hpp"
#include "proxy/own_limits.hpp"
#include "proxy/settings_hash.hpp"
#include "proxy/state_dir.hpp"

namespace {

constexpr int kExitUsage = 2;

/// Without them there is no server: better no replica than one that leads and serves nobody.
void check_files(const crane::proxy::Config& config) {
    const auto check = [](const char* key, const std::string& path, int mode) {
        if (access(path.c_str(), mode) == 0 && std::filesystem::is_regular_file(path)) return;
        const std::string reason = errno && access(path.c_str(), mode) != 0 ? strerror(errno) : "no file";
        throw std::runtime_error(std::string(key) + " = \"" + path + "\": " + reason +
                                 "; build or install Crane, and give the path there");
    };
    check("shim", config.shim, R_OK);
    check("init", config.init, X_OK);
}

/// Reads what [tls] names, as the start would. What will soon be wrong is returned.
std::string check_tls(const crane::proxy::Config& config) {
    if (!config.tls.configured()) return "";
    const crane::paxos::TlsContext tls(config.tls, {config.cluster_id, config.replica_id});
    return tls.renewal_warning(time(nullptr));
}

/// What a path that is no configuration most likely is.
void check_config_path(const std::string& path) {
    std::error_code error;
    if (std::filesystem::is_directory(path, error))
        throw std::runtime_error("--config " + path + " is a directory: give the file in it, " + path +
                                 "/craned.toml");
}

}  // namespace

int main(int argc, char** argv) {
    crane::open_missing_descriptors();
    CLI::App app{"craned runs one replica of a server under Crane"};
    std::string path;
    app.add_option("--config", path, "the replica's configuration, craned.toml")->required();
    app.set_version_flag("--version", std::string("craned ") + CRANE_VERSION);
    bool check_only = false;
    app.add_flag("--check-config", check_only, "say whether the configuration is right, and start nothing");
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) return app.exit(error);  // --help
        fprintf(stderr, "craned: %s (craned --help)\n", error.what());
        return kExitUsage;
    }
    try {
        check_config_path(path);
        crane::proxy::Config config = crane::proxy::load_config(path);
        if (check_only) {
            if (!config.witness) check_files(config);
            // Told whatever is wrong with the files of [tls]: a deployment that will renew them asks for it.
            printf("%s: replica %u of %zu, cluster %s, %s, settings %016lx\n", path.c_str(),
                   config.replica_id, config.replicas.size(), config.cluster_id.c_str(),
                   config.tls.configured() ? "peers by TLS" : "peers on loopback, not encrypted",
                   crane::proxy::settings_hash(config));
            const std::string warning = check_tls(config);
            if (!warning.empty()) fprintf(stderr, "craned: %s\n", warning.c_str());
            for (const std::string& one : crane::checkpoint::missing_exceptions(config.confinement))
                fprintf(stderr, "craned: as it runs here: %s\n", one.c_str());
            return 0;
        }
        if (!config.witness) check_files(config);
        crane::proxy::settle_own_limits();
        const std::string exposed = crane::proxy::make_state_dir(config.state_dir);
        const crane::proxy::StateDirLock lock(config.state_dir);
        crane::proxy::open_daemon_log(config);
        if (getenv("CRANE_FAIL_POINTS")) crane::checkpoint::arm_fail_points(config.state_dir + "/fail-at");
        if (!exposed.empty()) spdlog::warn("{}", exposed);
        const crane::proxy::ClientLimit clients(crane::proxy::raise_descriptor_limit());
        if (clients.max_clients() < crane::proxy::kFewClients)
            spdlog::warn(
                "the limit of open files leaves room for {} clients: raise it (ulimit -n, LimitNOFILE=)",
                clients.max_clients());
        spdlog::info("craned {} starts, replica {} of cluster {}", CRANE_VERSION, config.replica_id,
                     config.cluster_id);
        crane::proxy::LogDurability durability(config.state_dir, !config.durable);
        if (durability.lost()) config.rejoin = true;
        int status = 0;
        {
            crane::proxy::Craned craned(std::move(config));
            durability.opened();
            status = craned.run();
        }
        if (status == 0) durability.closed();
        spdlog::info("stopped");
        return status;
    } catch (const std::exception& error) {
        const bool disowned = dynamic_cast<const crane::paxos::DisownedStore*>(&error) != nullptr;
        if (spdlog::default_logger()->name() == "craned") spdlog::critical("{}", error.what());
        if (!isatty(2) || spdlog::default_logger()->name() != "craned")
            fprintf(stderr, "craned: %s\n", error.what());
        if (dynamic_cast<const crane::paxos::DamagedStore*>(&error) != nullptr)
            return crane::proxy::kExitDamaged;
        return disowned ? crane::proxy::kExitDisowned : 1;
    }
}
