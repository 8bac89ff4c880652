// What happened in a life, counted, so that coverage is seen and not assumed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace crane::sim {

enum class Count : uint8_t {
    kSteps,
    kSimulatedMs,
    kMessages,
    kMessagesLost,
    kMessagesDuplicated,
    kProposals,
    kDecided,
    kDelivered,
    kPersists,
    kViews,
    kElections,
    kTransfers,
    kPowerCuts,
    kKills,
    kCrashesInDiskCalls,
    kShutdowns,
    kRestarts,
    kFailedStarts,
    kDiskStops,
    kTornSectors,
    kLostWrites,
    kLostNames,
    kRemovedFiles,
    kDiskErrors,
    kForgottenWrites,
    kPauses,
    kWaitsSpokenFor,
    kClogs,
    kBrokenLinks,
    kPartitions,
    kLostDisks,
    kRejoined,
    kLearnersAdded,
    kPromoted,
    kRemoved,
    kChangesRefused,
    kTruncations,
    kCheckpointsRestored,
    kWriteBacks,
    kPlattersOpened,
    kPeersGone,
    kDeliveryPauses,
    kBarred,
    kWithoutRoom,
    kLedBarred,
    kRottenDisks,
    kRotHarmless,
    kRotRefused,
    kRotFoundLater,
    kStoresVerified,
    kOldDisks,
    kOldDisksNoticed,
    kSettled,
    kCountOfCounts
};

class Counts {
  public:
    static constexpr size_t kSize = static_cast<size_t>(Count::kCountOfCounts);

    void add(Count which, uint64_t number = 1) { numbers_[static_cast<size_t>(which)] += number; }
    uint64_t of(Count which) const { return numbers_[static_cast<size_t>(which)]; }
    void add(const Counts& other) {
        for (size_t i = 0; i < kSize; ++i) numbers_[i] += other.numbers_[i];
    }
    std::array<uint64_t, kSize>& numbers() { return numbers_; }
    static const char* name(size_t which);
    std::string text() const;

  private:
    std::array<uint64_t, kSize> numbers_{};
};

}  // namespace crane::sim
