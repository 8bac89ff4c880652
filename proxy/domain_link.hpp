// craned's end of the rings: decided batches in, output records out.
//
// It keeps the segment's rules (timebubble/transport.hpp): publish with a release store, ring only a partner
// that said it sleeps, announce before sleeping and look once more.
//
// The domain may be in an attacker's hands, so nothing that it can write is believed: craned keeps its own
// offsets to itself and only publishes them, takes a copy of a record before it looks at it, and of what does
// not fit says so by an exception, after which the domain must be ended. Text and numbers of the status block
// are for show and for pacing; whatever they say, craned stays whole.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/domain_gate.hpp"
#include "proxy/domain_words.hpp"
#include "timebubble/transport.hpp"

namespace crane::proxy {

class DomainLink {
  public:
    using Handler = std::function<void(const timebubble::OutputHeader&, std::string_view)>;

    explicit DomainLink(const timebubble::TransportView& view);

    /// Writes the control block of a zeroed segment; before the domain starts.
    void prepare(const timebubble::DomainSettings& settings,
                 timebubble::EgressPolicy egress = timebubble::EgressPolicy::kRefuse, bool backstop = false,
                 const OwnAddresses& own_addresses = kUsualAddresses);
    /// After that, for processes that come out of an image and were attached before: `image`, not 0, is
    /// another than any that they have come out of.
    void prepare_restored(const DomainWords& words, uint32_t image);
    DomainWords words() const;
    /// The domain can go on only with another batch, whatever it still wants to do.
    bool starved() const;

    /// Publishes a batch. False: no room now, nothing happened. Throws as drain() does.
    bool feed(uint64_t index, std::string_view batch);

    /// Hands every published output record to `handler`, at most about `max_bytes`; returns how many records.
    /// Throws std::runtime_error when the ring is not well formed.
    size_t drain(const Handler& handler, size_t max_bytes);

    /// Announces that craned goes to sleep. False: there is output already, do not sleep. What else the
    /// domain may have said of itself (status) must be read again after this call. Call awake() after either.
    bool prepare_sleep();
    void awake();

    /// Why the domain gave up, in its own words, as one line.
    std::string refusal() const;
    /// Every thread of the domain waits, and all it has said is drained.
    bool at_rest() const;
    /// What it has inotify watch, as it says.
    std::vector<std::string> watched_paths() const;
    /// It has used up what it was granted and waits for the next batch, and all it has said is drained. Under
    /// `serial` nothing runs in it then, though a thread of it would go on.
    bool at_standstill() const;
    const timebubble::DomainStatus& status() const { return view_.control->status; }
    const timebubble::TscFaults& tsc() const { return view_.control->tsc; }
    const timebubble::TrappedCalls& trapped() const { return view_.control->trapped; }
    /// Batches fed and not yet seen as admitted in the output.
    uint64_t unadmitted() const { return unadmitted_.size(); }
    uint64_t wakeups() const { return wakeups_; }
    DomainGate& gate() { return gate_; }

    /// All that it has said.
    bool all_drained() const;

  private:
    void free_output();
    uint64_t published_output() const;
    void check_record(const timebubble::OutputHeader& header, std::string_view payload);

    timebubble::TransportView view_;
    uint64_t input_head_;  ///< what the segment shows of these two is for the domain
    uint64_t output_tail_;
    std::deque<uint64_t> unadmitted_;  ///< log indices, in the order fed
    std::string record_;               ///< the payload under work: the domain cannot change it any more
    uint64_t wakeups_ = 0;
    DomainGate gate_;
};

}  // namespace crane::proxy
