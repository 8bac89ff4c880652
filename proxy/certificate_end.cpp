#include "proxy/certificate_end.hpp"

#include <algorithm>
#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/clock.hpp"
#include "paxos/link/tls.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kReadEveryNs = 5ULL * 1'000'000'000;

std::string text_of(const std::string& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
}

}  // namespace

int64_t CertificateEnd::seconds() {
    const uint64_t now = monotonic_ns();
    if (certificate_.empty() || (read_ns_ != 0 && now - read_ns_ < kReadEveryNs)) return ends_s_;
    read_ns_ = now;
    try {
        const std::string own = text_of(certificate_);
        ends_s_ = paxos::inspect_certificate(own).validity.not_after_s;
        authority_ends_s_ = paxos::authority_ends_s(own, text_of(authorities_));
        if (authority_ends_s_ != 0) ends_s_ = std::min(ends_s_, authority_ends_s_);
    } catch (const std::runtime_error&) {  // the links' own look at it tells of it
        ends_s_ = authority_ends_s_ = 0;
    }
    return ends_s_;
}

}  // namespace crane::proxy
