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

#include "base/clock.hpp"
#include "proxy/log_limit.hpp"

namespace crane::proxy {

namespace {

/// Of one file; then it becomes the older one of two. What a server or its clients can have said again and
/// again fills no disk.
constexpr size_t kMostLogBytes = 32 << 20;

/// Of the file that is written to now. The library would make it readable by all.
struct stat make_file(const std::string& path) {
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) throw std::runtime_error("cannot open " + path + ": " + strerror(errno));
    struct stat made {};
    fstat(fd, &made);
    close(fd);
    return made;
}

/// Where the launcher gave this process the same file to write to, that goes along.
void follow(const struct stat& before, const std::string& path) {
    const int fd = open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    for (const int standard : {1, 2}) {
        struct stat at {};
        if (fd >= 0 && fstat(standard, &at) == 0 && at.st_dev == before.st_dev && at.st_ino == before.st_ino)
            dup2(fd, standard);
    }
    if (fd >= 0) close(fd);
}

/// Written to by more threads than the loop's, and moved away under them (SIGHUP).
class LogFile final : public spdlog::sinks::base_sink<std::mutex> {
  public:
    explicit LogFile(std::string path) : path_(std::move(path)) { open_here(); }

    /// The file that is at the path now. Throws where it cannot be opened: the old one stays.
    void reopen() {
        const std::lock_guard guard(mutex_);
        open_here();
    }

  private:
    void sink_it_(const spdlog::details::log_msg& message) override {
        // Who wants to know everything has asked for it.
        if (message.level >= spdlog::level::info) {
            const bool admitted =
                limit_.admits({message.payload.data(), message.payload.size()}, monotonic_ns());
            for (const std::string& summary : limit_.take_summaries())
                put({message.time, message.source, message.logger_name, spdlog::level::warn, summary});
            if (!admitted) return;
        }
        put(message);
    }
    void flush_() override { file_->flush(); }

    void put(const spdlog::details::log_msg& message) {
        spdlog::memory_buf_t text;
        formatter_->format(message, text);
        if (bytes_ + text.size() > kMostLogBytes) begin_anew();
        file_->write(text);
        bytes_ += text.size();
    }

    void open_here() {
        const struct stat made = make_file(path_);
        auto other = std::make_unique<spdlog::details::file_helper>();
        other->open(path_);
        if (file_) {
            file_->flush();
            follow(opened_, path_);
        }
        file_ = std::move(other);
        opened_ = made;
        bytes_ = static_cast<size_t>(made.st_size);
    }
    /// Where that cannot be done the old one grows on, and it is tried again after as much.
    void begin_anew() {
        bytes_ = 0;
        try {
            if (rename(path_.c_str(), (path_ + ".1").c_str()) == 0) open_here();
        } catch (const std::exception&) {
        }
    }

    const std::string path_;
    std::unique_ptr<spdlog::details::file_helper> file_;
    struct stat opened_ {};
    size_t bytes_ = 0;
    LogLimit limit_;
};

std::shared_ptr<LogFile> log_file;

void set_pattern(spdlog::logger& logger, const Config& config) {
    logger.set_pattern("%Y-%m-%d %H:%M:%S.%f %l r" + std::to_string(config.replica_id) + ": %v");
}

}  // namespace

void open_daemon_log(const Config& config) {
    log_file = std::make_shared<LogFile>(config.state_dir + "/craned.log");
    std::vector<spdlog::sink_ptr> sinks{log_file};
    if (isatty(2)) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_mt>());
    auto logger = std::make_shared<spdlog::logger>("craned", sinks.begin(), sinks.end());
    set_pattern(*logger, config);
    logger->set_level(spdlog::level::from_str(config.log_level));
    logger->flush_on(spdlog::level::trace);
    spdlog::set_default_logger(logger);
}

void reopen_daemon_log() {
    try {
        log_file->reopen();
    } catch (const std::exception& error) {
        spdlog::error("craned.log is not reopened: {}", error.what());
    }
}

}  // namespace crane::proxy
