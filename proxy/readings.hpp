// What is asked of a craned and takes reading its files: done beside the loop, one after the other.
//
// Rules kept here:
//   - the loop never waits for the disk: a thread of its own reads (worker.hpp);
//   - what waits is bounded, and so is what is kept for those who ask later what came of it.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>

struct event_base;

namespace crane::proxy {

class OutputMarks;
class Worker;

class Readings {
  public:
    static constexpr size_t kMaxWaiting = 16;
    /// Their numbers are none that a letter to another replica has.
    static constexpr uint64_t kFirstNumber = 1ULL << 62;
    using Reply = std::function<void(nlohmann::json)>;

    Readings(event_base* base, const std::string& state_dir);
    ~Readings();
    Readings(const Readings&) = delete;
    Readings& operator=(const Readings&) = delete;

    static bool knows(const std::string& command);
    /// `reply` is called in the loop, at once where too many wait; not after this is gone.
    void ask(const nlohmann::json& request, Reply reply);
    /// The number under which the answer will be.
    uint64_t begin(const nlohmann::json& request);
    /// Empty while there is none.
    std::string answer(uint64_t number) const;

  private:
    event_base* const base_;
    std::shared_ptr<OutputMarks> marks_;  ///< of the thread alone
    std::unique_ptr<Worker> worker_;      ///< made when something is asked
    size_t waiting_ = 0;
    uint64_t last_number_ = kFirstNumber;
    std::deque<std::pair<uint64_t, std::string>> answers_;
};

}  // namespace crane::proxy
