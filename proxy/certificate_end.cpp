#include "proxy/certificate_end.hpp"

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "base/clock.hpp"
#include "paxos/link/certificate.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kReadEveryNs = 5ULL * 1'000'000'000;

}  // namespace

int64_t CertificateEnd::seconds() {
    const uint64_t now = monotonic_ns();
    if (path_.empty() || (read_ns_ != 0 && now - read_ns_ < kReadEveryNs)) return ends_s_;
    read_ns_ = now;
    std::ostringstream text;
    text << std::ifstream(path_, std::ios::binary).rdbuf();
    try {
        ends_s_ = paxos::inspect_certificate(text.str()).validity.not_after_s;
    } catch (const std::runtime_error&) {  // the links' own look at it tells of it
        ends_s_ = 0;
    }
    return ends_s_;
}

}  // namespace crane::proxy
