#include "proxy/daemon_log.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

namespace crane::proxy {

namespace {

/// The file that is written to now.
struct stat opened {};

std::string log_path(const Config& config) {
    return config.state_dir + "/craned.log";
}

spdlog::sink_ptr open_file(const Config& config) {
    const std::string path = log_path(config);
    // The library would make it readable by all.
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    fstat(fd, &opened);
    close(fd);
    return std::make_shared<spdlog::sinks::basic_file_sink_st>(path);
}

void set_pattern(spdlog::logger& logger, const Config& config) {
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%f %l r" + std::to_string(config.replica_id) + ": %v");
}

}  // namespace

void open_daemon_log(const Config& config) {
    std::vector<spdlog::sink_ptr> sinks{open_file(config)};
    if (isatty(2)) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_st>());
    auto logger = std::make_shared<spdlog::logger>("craned", sinks.begin(), sinks.end());
    set_pattern(*logger, config);
    logger->set_level(spdlog::level::from_str(config.log_level));
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(logger);
}

void reopen_daemon_log(const Config& config) {
    spdlog::logger& logger = *spdlog::default_logger();
    const struct stat before = opened;
    try {
        logger.sinks().at(0) = open_file(config);
        set_pattern(logger, config);
    } catch (const std::exception& error) {
        logger.error("craned.log is not reopened: {}", error.what());
        return;
    }
    // Where the launcher gave this process the same file to write to, that goes along.
    const int fd = open(log_path(config).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (const int standard : {1, 2}) {
        struct stat at {};
        if (fd >= 0 && fstat(standard, &at) == 0 && at.st_dev == before.st_dev && at.st_ino == before.st_ino)
            dup2(fd, standard);
    }
    if (fd >= 0) close(fd);
}

}  // namespace crane::proxy
