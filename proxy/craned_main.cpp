// craned: one replica of a server. See docs/man/craned.1.
#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "proxy/craned.hpp"

namespace {

/// STATE/rN/craned.log, and standard error as well when somebody sits there.
void set_up_log(const crane::proxy::Config& config) {
    auto file = std::make_shared<spdlog::sinks::basic_file_sink_st>(config.state_dir + "/craned.log");
    std::vector<spdlog::sink_ptr> sinks{file};
    if (isatty(2)) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_st>());
    auto logger = std::make_shared<spdlog::logger>("craned", sinks.begin(), sinks.end());
    logger->set_pattern("%Y-%m-%d %H:%M:%S.%e %l r" + std::to_string(config.replica_id) + ": %v");
    logger->set_level(spdlog::level::from_str(config.log_level));
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(logger);
}

/// One craned per state directory; the lock goes with the process.
void lock_state_dir(const std::string& state_dir) {
    const std::string path = state_dir + "/craned.lock";
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        throw std::runtime_error("another craned runs on " + state_dir + "; stop it first (crane stop)");
    }
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"craned runs one replica of a server under Crane"};
    std::string path;
    app.add_option("--config", path, "the replica's configuration, craned.toml")->required();
    app.set_version_flag("--version", std::string("craned ") + CRANE_VERSION);
    CLI11_PARSE(app, argc, argv);
    try {
        crane::proxy::Config config = crane::proxy::load_config(path);
        std::filesystem::create_directories(config.state_dir);
        std::filesystem::permissions(config.state_dir, std::filesystem::perms::owner_all);
        lock_state_dir(config.state_dir);
        set_up_log(config);
        spdlog::info("craned {} starts, replica {} of cluster {}", CRANE_VERSION, config.replica_id,
                     config.cluster_id);
        int status = 0;
        {
            crane::proxy::Craned craned(std::move(config));
            status = craned.run();
        }
        spdlog::info("stopped");
        return status;
    } catch (const std::exception& error) {
        if (spdlog::default_logger()->name() == "craned") spdlog::critical("{}", error.what());
        if (!isatty(2) || spdlog::default_logger()->name() != "craned")
            fprintf(stderr, "craned: %s\n", error.what());
        return 1;
    }
}
