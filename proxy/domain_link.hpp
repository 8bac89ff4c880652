// craned's end of the rings: decided batches in, output records out.
//
// It keeps the segment's rules (timebubble/transport.hpp): publish with a release store, ring only a partner
// that said it sleeps, announce before sleeping and look once more. What the domain wrote is checked before
// it is used: the domain is the operator's server and may scribble.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "timebubble/transport.hpp"

namespace crane::proxy {

class DomainLink {
  public:
    using Handler = std::function<void(const timebubble::OutputHeader&, std::string_view)>;

    explicit DomainLink(const timebubble::TransportView& view);

    /// Writes the control block of a zeroed segment; before the domain starts.
    void prepare(const timebubble::DomainSettings& settings);

    /// Publishes a batch. False: no room now, nothing happened.
    bool feed(uint64_t index, std::string_view batch);

    /// Hands every published output record to `handler`, at most about `max_bytes`; returns how many records.
    /// Throws std::runtime_error when the ring is not well formed.
    size_t drain(const Handler& handler, size_t max_bytes);

    /// Announces that craned goes to sleep. False: there is output already, do not sleep. What else the
    /// domain may have said of itself (status) must be read again after this call. Call awake() after either.
    bool prepare_sleep();
    void awake();

    /// Every thread of the domain waits, and all it has said is drained.
    bool at_rest() const;
    const timebubble::DomainStatus& status() const { return view_.control->status; }
    /// Batches fed and not yet seen as admitted in the output.
    uint64_t unadmitted() const { return fed_ - admitted_; }
    uint64_t last_fed_index() const { return last_fed_index_; }
    uint64_t wakeups() const { return wakeups_; }

  private:
    void free_output(uint64_t tail);

    timebubble::TransportView view_;
    uint64_t fed_ = 0;
    uint64_t admitted_ = 0;
    uint64_t last_fed_index_ = 0;
    uint64_t wakeups_ = 0;
};

}  // namespace crane::proxy
