// Which checkpoint to fetch, and from whom: what the others offer, what is here already, and who has failed.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "proxy/checkpoint_words.hpp"

namespace crane::proxy {

class CheckpointChoice {
  public:
    struct Chosen {
        uint32_t source = 0;
        Offer offer;
    };

    // --- a round of asking
    void begin_round() {
        offers_.clear();
        unanswered_.clear();
    }
    void asked(uint32_t peer) { unanswered_.insert(peer); }
    void answered(uint32_t peer, const std::vector<Offer>& offers);
    void lost(uint32_t peer);
    bool complete() const { return unanswered_.empty(); }

    /// What is here of some, from an earlier attempt.
    void set_arriving(const std::vector<CheckpointName>& names) { arriving_ = {names.begin(), names.end()}; }

    /// Ids of those that no server could be restored from here.
    void set_refused(std::set<std::string> ids) { refused_ = std::move(ids); }
    /// Of those that are offered and would do, all are such.
    bool only_refused(uint64_t min_index) const;

    /// The one that is here in part, else a backup's, else the newest; none that has failed just now.
    std::optional<Chosen> choose(uint64_t min_index, uint32_t leader, uint64_t now_ns) const;
    /// Why choose() had nothing.
    /// `wanted`: what of this entry or later is, in words; `verifier`: the command that looks at those there
    /// are.
    std::string why_none(uint64_t min_index, const std::string& wanted, const std::string& verifier) const;

    /// It has not given what it offered: left alone for a while, longer each time.
    void blame(uint32_t source, const CheckpointName& name, uint64_t now_ns);
    /// A part of it came wrong. True: too often; nobody's is taken for some minutes.
    bool count_damage(const CheckpointName& name, uint64_t now_ns);

  private:
    struct Mark {
        uint64_t until_ns = 0;
        uint64_t pause_ns = 0;
    };
    struct Damage {
        unsigned times = 0;
        uint64_t until_ns = 0;
    };
    bool usable(uint32_t source, const CheckpointName& name, uint64_t now_ns) const;

    std::set<uint32_t> unanswered_;
    std::map<uint32_t, std::vector<Offer>> offers_;
    std::set<CheckpointName> arriving_;
    std::set<std::string> refused_;
    std::map<std::pair<uint32_t, CheckpointName>, Mark> marks_;
    std::map<CheckpointName, Damage> damaged_;
};

}  // namespace crane::proxy
