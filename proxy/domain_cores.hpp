// Keeps a domain's threads where Placement says: looks at them in /proc, and sets their affinity. All of it
// in a thread of its own. Threads and processes that begin later are where the one is that began them.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <memory>

#include "proxy/placement.hpp"
#include "proxy/worker.hpp"

struct event_base;

namespace crane::proxy {

class DomainCores {
  public:
    /// Between the cores that this process may use. Throws std::system_error when no thread can be had.
    explicit DomainCores(event_base* base);
    DomainCores(const DomainCores&) = delete;
    DomainCores& operator=(const DomainCores&) = delete;

    /// To be called now and then. `init`: the first process of the domain; `handovers`: of its turn so far.
    void look(uint64_t now_ns, pid_t init, uint64_t handovers);
    /// Where it is kept; Placement::kAnywhere: nowhere.
    int core() const { return placement_.core(); }

  private:
    struct Look;

    void looked(const Look& before, const Look& now);
    void set(int core);

    cpu_set_t allowed_;
    Placement placement_;
    pid_t init_ = 0;
    uint64_t next_ns_ = 0;
    std::shared_ptr<Look> last_;
    Worker worker_;
};

}  // namespace crane::proxy
