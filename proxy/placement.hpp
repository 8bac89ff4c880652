// On which core the threads of a serial domain run. Pure: told what they did in a while, says where they
// belong.
//
// One of them goes on at a time, and where the turn goes to a thread on another core, that core has to be
// woken for it: ten times the cost of a hand-over on one core. The system's scheduler does not know that they
// never run side by side, and spreads them. So a domain that hands over a lot is tried on one core, and stays
// there if its hand-overs come cheaper so (a domain that waits for its clients and its disk between them may
// be better off where the system wakes it, which only a try can tell), and as long as nobody else wants that
// core: where its threads wait for a processor for longer than hand-overs explain, it moves to a core that is
// idle, and where there is none it is left to the system again. After a try in vain the next one comes later.
// One that hardly runs is left to the system.
#pragma once

#include <cstdint>
#include <vector>

namespace crane::proxy {

class Placement {
  public:
    static constexpr int kAnywhere = -1;

    /// Of all threads of the domain, between two looks.
    struct Work {
        uint64_t passed_ns = 0;
        uint64_t ran_ns = 0;
        uint64_t waited_ns = 0;  ///< ready to run, and did not
        uint64_t handovers = 0;
    };
    struct Core {
        int number;
        double idle;  ///< of that time, 0 to 1
    };

    /// Whether threads have to be looked at: not where they hand over little.
    bool matters(uint64_t now_ns, uint64_t handovers);
    /// Where the domain belongs from now on: one of `cores`, or kAnywhere. To be called when it matters.
    int observe(uint64_t now_ns, const Work& work, const std::vector<Core>& cores);
    /// Another server's threads: nothing is known of them, and they are where the system has put them.
    void forget();
    /// It does not matter any more. True: it was kept on a core.
    bool rest();
    int core() const { return core_; }

  private:
    /// What a try is judged by.
    struct Pace {
        double share = 0;  ///< of a core
        double handovers_per_s = 0;
        /// Of processor time.
        double cost_of_handover() const { return share / (handovers_per_s > 1 ? handovers_per_s : 1); }
    };

    static Pace pace_of(const Work& work);
    bool worth_it(const Pace& now) const;
    int anywhere(uint64_t now_ns);

    int core_ = kAnywhere;
    uint64_t looked_ns_ = 0, seen_handovers_ = 0;  ///< by matters()
    uint64_t kept_since_ns_ = 0;
    uint64_t next_try_ns_ = 0;
    uint64_t pause_ns_ = 0;
    Pace elsewhere_;      ///< before the try
    int looks_left_ = 0;  ///< until it is judged; 0: it was
};

}  // namespace crane::proxy
