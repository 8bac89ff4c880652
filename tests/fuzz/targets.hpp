// What is fuzzed: every decoder of bytes that come from another replica, from the server's
// domain, or back from the disk.
//
// A target takes any bytes, and throws Violation when a property does not hold that must hold for all of
// them. libFuzzer runs them (fuzzer_main.cpp, `make fuzz`); tests/unit/test_fuzz_corpus.cpp runs the kept
// inputs again.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace crane::fuzz {

class Violation : public std::logic_error {
  public:
    using std::logic_error::logic_error;
};

inline void must(bool holds, const char* what) {
    if (!holds) throw Violation(what);
}

// Takes an input apart; zeros when it is used up.
class Input {
  public:
    explicit Input(std::string_view bytes) : rest_(bytes) {}
    bool empty() const { return rest_.empty(); }
    template <typename T>
    T number() {
        T value{};
        const std::string_view bytes = take(sizeof value);
        std::memcpy(&value, bytes.data(), bytes.size());
        return value;
    }
    std::string_view take(size_t size) {
        const std::string_view bytes = rest_.substr(0, size);
        rest_.remove_prefix(bytes.size());
        return bytes;
    }
    std::string_view rest() { return take(rest_.size()); }

  private:
    std::string_view rest_;
};

struct Target {
    const char* name;
    void (*run)(std::string_view bytes);
};
const std::vector<Target>& targets();

// paxos_targets.cpp
void fuzz_message(std::string_view bytes);
void fuzz_frame(std::string_view bytes);
void fuzz_hello(std::string_view bytes);
void fuzz_membership(std::string_view bytes);
void fuzz_record(std::string_view bytes);
void fuzz_disk(std::string_view bytes);
void fuzz_identity(std::string_view bytes);
// proxy_targets.cpp
void fuzz_batch(std::string_view bytes);
void fuzz_admissions(std::string_view bytes);
void fuzz_carrier(std::string_view bytes);
void fuzz_rings(std::string_view bytes);
void fuzz_letters(std::string_view bytes);
// output_targets.cpp
void fuzz_outputs(std::string_view bytes);
void fuzz_sides(std::string_view bytes);
// checkpoint_targets.cpp
void fuzz_checkpoints(std::string_view bytes);

}  // namespace crane::fuzz
