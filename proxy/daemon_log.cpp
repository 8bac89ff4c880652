#include "proxy/daemon_log.hpp"

#include <errno.h>
#include <fcntl.h>
#include <spdlog/details/file_helper.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <mutex>
#include <stdexcept>

namespace crane::proxy {

namespace {

/// Written to by more threads than the loop's, and moved away under them (SIGHUP).
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
  public:
    explicit LogFile(const std::string& path) { file_->open(path); }

    /// The file that is at `path` now. Where it cannot be opened the old one stays.
    void reopen(const std::string& path) {
        auto other = std::make_unique<spdlog::details::file_helper>();
        other->open(path);
        const std::lock_guard guard(mutex_);
        file_->flush();
        file_ = std::move(other);
    }

  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t text;
        formatter_->format(message, text);
        file_->write(text);
    }
    void flush_() override { file_->flush(); }

    std::unique_ptr<spdlog::details::file_helper> file_ = std::make_unique<spdlog::details::file_helper>();
};

/// The file that is written to now.
struct stat opened {};
std::shared_ptr<LogFile> log_file;

std::string log_path(const Config& config) {
    return config.state_dir + "/craned.log";
}

/// The library would make it readable by all.
std::string make_file(const Config& config) {
    std::string path = log_path(config);
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    fstat(fd, &opened);
    close(fd);
    return path;
}

void set_pattern(spdlog::logger& logger, const Config& config) {
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%f %l r" + std::to_string(config.replica_id) + ": %v");
}

}  // namespace

void open_daemon_log(const Config& config) {
    log_file = std::make_shared<LogFile>(make_file(config));
    std::vector<spdlog::sink_ptr> sinks{log_file};
    if (isatty(2)) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
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
        log_file->reopen(make_file(config));
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
