// When this replica's certificate ends. Read anew now and then, since it may be replaced while craned runs.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

class CertificateEnd {
  public:
    /// `path` is empty where there is none.
    explicit CertificateEnd(std::string path) : path_(std::move(path)) {}
    /// Since 1970; 0: there is none, or it cannot be read.
    int64_t seconds();

  private:
    std::string path_;
    int64_t ends_s_ = 0;
    uint64_t read_ns_ = 0;
};

}  // namespace crane::proxy
