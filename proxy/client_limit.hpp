// How many clients fit into this process's descriptors, when some are kept for peers, log, operator and
// containers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace crane::proxy {

constexpr size_t kReservedDescriptors = 256;
constexpr size_t kFewClients = 1000;  ///< fewer than these are most likely a limit that nobody chose

class ClientLimit {
  public:
    /// By this process's limit of open files.
    ClientLimit();
    explicit ClientLimit(size_t descriptors);

    /// May one more be added to `clients`? Says now and then when not.
    bool admits(size_t clients, uint64_t now_ns);
    /// So many there are now; call now and then.
    void observe(size_t clients);
    size_t max_clients() const { return max_clients_; }
    bool reached() const { return reached_; }

  private:
    size_t max_clients_;
    bool reached_ = false;
    uint64_t said_ns_ = 0;
};

/// As many descriptors as the system lets this process have. The soft limit that holds now.
size_t raise_descriptor_limit();

}  // namespace crane::proxy
