#include "proxy/client_limit.hpp"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>

namespace crane::proxy {

namespace {

constexpr uint64_t kSayEveryNs = 60ULL * 1'000'000'000;

size_t descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 1 << 20;
    return limit.rlim_cur;
}

}  // namespace

ClientLimit::ClientLimit() : ClientLimit(descriptor_limit()) {}

// Where there are few, half of them are for clients.
ClientLimit::ClientLimit(size_t descriptors)
    : max_clients_(descriptors - std::min(kReservedDescriptors, descriptors / 2)) {}

bool ClientLimit::admits(size_t clients, uint64_t now_ns) {
    if (clients < max_clients_) return true;
    reached_ = true;
    if (said_ns_ == 0 || now_ns - said_ns_ > kSayEveryNs) {
        said_ns_ = now_ns;
        spdlog::error(
            "{} clients are connected, and more do not fit into the limit of open files: others are refused. "
            "Raise it (ulimit -n, LimitNOFILE=)",
            clients);
    }
    return false;
}

// Some room again, or it would be told of each time that one leaves and another one comes.
void ClientLimit::observe(size_t clients) {
    if (clients < max_clients_ - max_clients_ / 8) reached_ = false;
}

size_t raise_descriptor_limit() {
    rlimit limit{};
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return descriptor_limit();
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
    return descriptor_limit();
}

}  // namespace crane::proxy
