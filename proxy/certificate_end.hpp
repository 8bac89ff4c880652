// When this replica's certificate ends, or the authority's that signed it: the earlier of both is when peers
// take no new links. Read anew now and then, since they may be replaced while craned runs.
#pragma once

#include <cstdint>
#include <string>

namespace crane::proxy {

class CertificateEnd {
  public:
    /// The paths of [tls]; empty where there is none.
    CertificateEnd(std::string certificate, std::string authorities)
        : certificate_(std::move(certificate)), authorities_(std::move(authorities)) {}
    /// Since 1970; 0: there is none, or it cannot be read.
    int64_t seconds();
    /// The authority's alone, as it was then.
    int64_t authority_seconds() const { return authority_ends_s_; }

  private:
    std::string certificate_, authorities_;
    int64_t ends_s_ = 0, authority_ends_s_ = 0;
    uint64_t read_ns_ = 0;
};

}  // namespace crane::proxy
