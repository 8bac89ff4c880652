// When the primary has checkpoints taken of the server that runs, and by whom. Pure.
//
// In a round replicas take one after the other, so that two never stand still at once: the backups, and the
// primary itself only where they are not enough. A witness has no server, and fetches one as soon as there is
// one. It ends when a majority holds one, or nobody is left to ask. Whoever is asked says now and then that
// it is still at it, since a large server's files take long to be packed; the next one is asked when it no
// longer does. Where that lasts longer than the pause, as long a pause follows: under load that never ends
// the backups have half of the time for their servers, and less is written to disks. As long as one lacks a
// checkpoint, a round is held back as far as the log and the longest pause allow: over a slow link a large
// one would else never have come before the next.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

namespace crane::proxy {

class ImageRounds {
  public:
    struct Settings {
        uint64_t log_bytes =
            0;                  ///< so much has to be decided since the last round; 0: it has to be asked for
        uint64_t pause_ns = 0;  ///< from the beginning of one to that of the next, unless the log grows far
    };
    /// What a replica that begins at the last checkpoint may have to compute again, however short the log is.
    static constexpr double kMostComputedS = 10;
    ImageRounds(uint32_t self, const Settings& settings) : self_(self), settings_(settings) {}

    struct Voter {
        uint32_t id;
        bool able;           ///< can be asked now
        uint64_t held;       ///< entry of its newest checkpoint
        bool takes = true;   ///< of its own server; a witness only fetches one that another has taken
        bool lacks = false;  ///< one is on its way to it, and is of no use when the log is cut behind it
    };
    void logged(uint64_t bytes) { bytes_ += bytes; }
    /// How long this replica's own server has computed so far, which is less again when it has begun anew.
    void computed(double cpu_s);
    /// A round is wanted now, whatever was decided since.
    void ask() { asked_ = true; }
    /// Who was asked cannot: the next one is.
    void failed(uint32_t id) {
        if (id == whom_) whom_ = 0;
    }
    /// Who was asked says that it is still at it.
    void at_it(uint64_t now_ns, uint32_t id) {
        if (id == whom_) heard_ns_ = now_ns;
    }
    /// Another one leads, or this one anew: nobody is waited for.
    void stop() {
        open_ = asked_ = false;
        whom_ = 0;
        looked_at_s_ = -1;
    }
    /// To be called now and then while leading. Whom to ask now; 0: nobody. `index` is that of the last
    /// entry.
    uint32_t next(uint64_t now_ns, uint64_t index, const std::vector<Voter>& voters);
    bool open() const { return open_; }
    /// Where a checkpoint of this round has to stand, or behind it.
    uint64_t first_index() const { return first_index_; }
    /// A round is on, or about to be.
    bool wanted() const { return asked_ || open_; }

  private:
    bool due(uint64_t now_ns, bool lacking) const;
    /// Another one may have been asked for in the meantime.
    void finish(uint64_t now_ns) {
        took_ns_ = now_ns - began_ns_;
        open_ = false;
        whom_ = 0;
    }
    bool is_over(uint64_t now_ns, const std::vector<Voter>& voters);

    uint32_t self_;
    Settings settings_;
    uint64_t bytes_ = 0;       ///< since the last round began
    uint64_t began_ns_ = 0;    ///< which was then; 0: there was none
    uint64_t took_ns_ = 0;     ///< the last one, from its beginning to its end
    double computed_s_ = 0;    ///< since the last round began, as far as this one led
    double looked_at_s_ = -1;  ///< what it had computed then; below 0: not known
    bool asked_ = false;
    bool open_ = false;
    uint64_t first_index_ = 0;
    uint32_t whom_ = 0;      ///< is at it
    uint64_t since_ns_ = 0;  ///< when it was asked
    uint64_t heard_ns_ = 0;  ///< when it last said so
    std::set<uint32_t> tried_;
};

}  // namespace crane::proxy
