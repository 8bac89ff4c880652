// The one source of chance of a simulation: same seed, same life. (splitmix64: small, fast, the same
// everywhere.)
#pragma once

#include <cstdint>

namespace crane::sim {

class Random {
  public:
    explicit Random(uint64_t seed) : state_(mix(seed * 0xd6e8feb86659fd93ull + 1)) {}

    uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15ull); }
    uint64_t below(uint64_t bound) { return bound == 0 ? 0 : next() % bound; }
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1.0p-53 < probability; }
    /// Most of the time small, now and then up to the whole bound: exponents are drawn evenly.
    uint64_t skewed(uint64_t bound) { return below(bound >> below(8)) + 1; }

  private:
    static uint64_t mix(uint64_t z) {
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
        return z ^ (z >> 31);
    }

    uint64_t state_;
};

}  // namespace crane::sim
