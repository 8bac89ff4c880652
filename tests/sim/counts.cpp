#include "counts.hpp"

namespace crane::sim {
namespace {

constexpr std::array<const char*, Counts::kSize> kNames = {"steps",
                                                           "simulated ms",
                                                           "messages",
                                                           "messages lost",
                                                           "messages duplicated",
                                                           "proposals",
                                                           "decided",
                                                           "delivered",
                                                           "persists",
                                                           "views",
                                                           "elections",
                                                           "transfers",
                                                           "power cuts",
                                                           "kills",
                                                           "crashes in disk calls",
                                                           "clean shutdowns",
                                                           "restarts",
                                                           "failed starts",
                                                           "stops by the disk",
                                                           "torn sectors",
                                                           "lost writes",
                                                           "lost file names",
                                                           "log files removed",
                                                           "disk errors",
                                                           "writes that the system forgot",
                                                           "pauses",
                                                           "waits spoken for",
                                                           "clogged links",
                                                           "broken links",
                                                           "partitions",
                                                           "lost disks",
                                                           "rejoined",
                                                           "learners added",
                                                           "promoted",
                                                           "removed",
                                                           "changes refused",
                                                           "truncations",
                                                           "checkpoints restored",
                                                           "write-backs",
                                                           "platters opened",
                                                           "peers taken for gone",
                                                           "delivery pauses",
                                                           "barred from leading",
                                                           "disks without room",
                                                           "elected though barred",
                                                           "rotten disks",
                                                           "rot without effect",
                                                           "rot refused at the start",
                                                           "rot found later",
                                                           "stores verified",
                                                           "old disks put back",
                                                           "old disks noticed",
                                                           "lives settled"};
static_assert(kNames.back() != nullptr);

}  // namespace

const char* Counts::name(size_t which) {
    return kNames[which];
}

std::string Counts::text() const {
    std::string text;
    for (size_t i = 0; i < kSize; ++i) {
        if (numbers_[i] == 0) continue;
        if (!text.empty()) text += ", ";
        text += std::to_string(numbers_[i]) + " " + kNames[i];
    }
    return text;
}

}  // namespace crane::sim
