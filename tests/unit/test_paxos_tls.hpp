// Certificates for tests, and the log's lines.
#pragma once

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <time.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include "paxos/link/certificate.hpp"
#include "paxos/link/tls_files.hpp"

namespace crane::paxos::testing {

inline void write_file(const std::string& path, const std::string& text, mode_t mode) {
    std::ofstream(path + ".new") << text;
    chmod((path + ".new").c_str(), mode);
    std::filesystem::rename(path + ".new", path);
}

/// An authority and what it issues, in a directory of its own.
class Authority {
  public:
    explicit Authority(const std::string& cluster = "unit") {
        char name[] = "/tmp/crane-unit-tls-XXXXXX";
        directory_ = mkdtemp(name);
        const int64_t now = time(nullptr);
        authority_ = make_authority(cluster, {now - 1000 * kDaySeconds, now + 1000 * kDaySeconds});
        write_file(ca(), authority_.certificate, 0644);
    }
    ~Authority() { std::filesystem::remove_all(directory_); }
    Authority(const Authority&) = delete;
    Authority& operator=(const Authority&) = delete;

    /// Valid from and to, in days from now.
    PemPair issue(ReplicaId replica, int64_t from_days = -1, int64_t to_days = 365) const {
        const int64_t now = time(nullptr);
        return issue_certificate(authority_, replica,
                                 {now + from_days * kDaySeconds, now + to_days * kDaySeconds});
    }
    TlsFiles install(ReplicaId replica, const PemPair& pair, mode_t key_mode = 0600) const {
        const std::string base = directory_ + "/" + std::to_string(replica);
        write_file(base + ".crt", pair.certificate, 0644);
        write_file(base + ".key", pair.key, key_mode);
        return {ca(), base + ".crt", base + ".key", nullptr};
    }
    TlsFiles files(ReplicaId replica) const {
        const std::string base = directory_ + "/" + std::to_string(replica);
        if (std::filesystem::exists(base + ".crt")) return {ca(), base + ".crt", base + ".key", nullptr};
        return install(replica, issue(replica));
    }
    std::string ca() const { return directory_ + "/ca.crt"; }
    const PemPair& pair() const { return authority_; }

  private:
    std::string directory_;
    PemPair authority_;
};

/// What is logged while it lives.
class LogLines {
  public:
    LogLines() : before_(spdlog::default_logger()) {
        auto logger =
            std::make_shared<spdlog::logger>("unit", std::make_shared<spdlog::sinks::ostream_sink_st>(text_));
        logger->set_level(spdlog::level::info);
        spdlog::set_default_logger(logger);
    }
    ~LogLines() { spdlog::set_default_logger(before_); }
    LogLines(const LogLines&) = delete;
    LogLines& operator=(const LogLines&) = delete;
    bool has(const std::string& words) const { return text_.str().find(words) != std::string::npos; }
    size_t count(const std::string& words) const {
        const std::string text = text_.str();
        size_t found = 0;
        for (size_t at = 0; (at = text.find(words, at)) != std::string::npos; at += words.size()) ++found;
        return found;
    }
    std::string all() const { return text_.str(); }

  private:
    std::ostringstream text_;
    std::shared_ptr<spdlog::logger> before_;
};

}  // namespace crane::paxos::testing
