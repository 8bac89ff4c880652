// What happened in a life, counted, so that coverage is seen and not assumed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace crane::sim {

enum class Count : uint8_t {
    steps,
    simulated_ms,
    messages,
    messages_lost,
    messages_duplicated,
    proposals,
    decided,
    delivered,
    persists,
    views,
    elections,
    transfers,
    power_cuts,
    kills,
    crashes_in_disk_calls,
    shutdowns,
    restarts,
    failed_starts,
    disk_stops,
    torn_sectors,
    lost_writes,
    lost_names,
    removed_files,
    disk_errors,
    forgotten_writes,
    pauses,
    waits_spoken_for,
    clogs,
    broken_links,
    partitions,
    lost_disks,
    rejoined,
    learners_added,
    promoted,
    removed,
    changes_refused,
    truncations,
    checkpoints_restored,
    write_backs,
    platters_opened,
    peers_gone,
    delivery_pauses,
    barred,
    without_room,
    led_barred,
    rotten_disks,
    rot_harmless,
    rot_refused,
    rot_found_later,
    stores_verified,
    old_disks,
    old_disks_noticed,
    settled,
    count_of_counts
};

class Counts {
  public:
    static constexpr size_t size = static_cast<size_t>(Count::count_of_counts);

    void add(Count which, uint64_t number = 1) { numbers_[static_cast<size_t>(which)] += number; }
    uint64_t of(Count which) const { return numbers_[static_cast<size_t>(which)]; }
    void add(const Counts& other) {
        for (size_t i = 0; i < size; ++i) numbers_[i] += other.numbers_[i];
    }
    std::array<uint64_t, size>& numbers() { return numbers_; }
    static const char* name(size_t which);
    std::string text() const;

  private:
    std::array<uint64_t, size> numbers_{};
};

}  // namespace crane::sim
