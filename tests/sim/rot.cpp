// Disks that lose what they had, while their replica is down: a bit, a sector, a whole file of the log.
//
// The store must refuse such a disk, when it starts or when it reads what is damaged; or need nothing of what
// is. Then the disk is replaced, which is the loss of a disk like any other: one at a time.
//
// Left alone is what the store cannot tell from a write that was cut short, or from one that came later:
//   - of the log, all behind the place that its newest segment says was on disk before it (segment.hpp): it
//     was written last. The file that has this segment is not lost as a whole either;
//   - a page of the tree is not replaced by an older version of itself: its checksum holds.
#include <algorithm>
#include <array>
#include <cstdio>

#include "base/check.hpp"
#include "paxos/store/log_scan.hpp"
#include "world.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

constexpr std::array<uint64_t, 2> kSectors = {512, 4096};  // bytes that a disk loses together

// What of a file may rot.
struct Part {
    std::string path;
    uint64_t bytes = 0;  // from its beginning on
    bool is_log = false;
    bool may_be_lost = false;
};

std::vector<Part> parts_of(const Disk& disk) {
    std::vector<Part> parts;
    LogScan newest;
    std::vector<LogScan> logs;
    for (const std::string& name : disk.names()) {
        const std::string path = disk.root() + "/" + name;
        unsigned number = 0;
        if (std::sscanf(name.c_str(), "log.%10u", &number) == 1) {
            const LogScan scan = scan_log(number, disk.synced_bytes(path));
            if (newest.synced < scan.synced) newest = scan;
            logs.push_back(scan);
            parts.push_back({path, disk.synced_bytes(path).size(), true, false});
        }
    }
    for (size_t i = 0; i < parts.size(); ++i) {
        if (logs[i].file > newest.synced.file) parts[i].bytes = 0;
        if (logs[i].file == newest.synced.file)
            parts[i].bytes = std::min<uint64_t>(parts[i].bytes, newest.synced.offset);
        parts[i].may_be_lost = logs[i].file <= newest.synced.file && logs[i].file != newest.file;
    }
    const std::string tree = disk.root() + "/log.db";
    if (disk.find(tree) != nullptr) parts.push_back({tree, disk.synced_bytes(tree).size(), false, false});
    std::erase_if(parts, [](const Part& part) { return part.bytes == 0; });
    return parts;
}

}  // namespace

// What happens to a disk between two processes.
void World::before_start(Replica& replica) {
    const DiskFaults& faults = replica.disk->faults;
    if (!faults_on_ || !replica.shadow.exists() || faults.full || faults.sync_error > 0 ||
        faults.write_error > 0)
        return;
    if (added_.verification > 0 && added_random_.chance(added_.verification)) {
        const std::unique_ptr<Disk> copy = replica.disk->image("/sim/verified");
        const std::string problem = problems_of(*copy);
        if (!problem.empty() && !replica.rotten)
            checks_.violate("the check of replica " + std::to_string(replica.id) +
                            "'s sound disk says: " + problem);
        const Inspection after = inspect(replica, *copy);
        if (!replica.rotten && !(after.refused + after.differs).empty())
            checks_.violate("after the check of replica " + std::to_string(replica.id) +
                            "'s sound disk: " + after.refused + after.differs);
    }
    if (added_.rot > 0 && added_random_.chance(added_.rot) && may_lose_disk(replica)) rot(replica);
    if (added_.old_disk > 0 && added_random_.chance(added_.old_disk)) copy_disk(replica);
}

void World::rot(Replica& replica) {
    const std::string damaged = damage(replica);
    if (damaged.empty()) return;
    say("rot on the disk of replica " + std::to_string(replica.id) + ": " + damaged);
    counts_.add(Count::kRottenDisks);
    judge_rot(replica, damaged);
    // As long as it is so, nothing may be done to the cluster that a lost disk does not allow.
    replica.rejoins = replica.rotten;
    if (!replica.rotten) counts_.add(Count::kRotHarmless);
}

std::string World::damage(Replica& replica) {
    Disk& disk = *replica.disk;
    const std::vector<Part> parts = parts_of(disk);
    if (parts.empty()) return "";
    // The first one is the oldest file of the log, of which nothing is read at the start.
    const bool oldest = added_random_.chance(0.5);
    const Part& part = oldest ? parts.front() : parts[added_random_.below(parts.size())];
    const uint64_t at = added_random_.below(part.bytes);
    note("rot", replica.id, at);
    if (part.may_be_lost && added_random_.chance(0.2)) {
        disk.lose(part.path);
        return part.path + " is lost";
    }
    const std::string place = " at byte " + std::to_string(at) + " of " + part.path;
    if (added_random_.chance(0.4)) {
        const char bit = static_cast<char>(1 << added_random_.below(8));
        disk.damage(part.path, at, std::string(1, static_cast<char>(disk.synced_bytes(part.path)[at] ^ bit)));
        return "a bit is flipped" + place;
    }
    // A log only grows: an older version of its sector ends earlier.
    const uint64_t sector_bytes = kSectors[added_random_.below(kSectors.size())];
    const uint64_t sector = at / sector_bytes * sector_bytes;
    const uint64_t begin = part.is_log && added_random_.chance(0.5) ? at : sector;
    disk.damage(part.path, begin, std::string(std::min(sector + sector_bytes, part.bytes) - begin, '\0'));
    return (begin == sector ? "a sector is zero" : "a sector is stale") + place;
}

// Whatever the store does with it, it must not take it for something else: not when it is asked again after
// it has refused, nor after the offline check.
void World::judge_rot(Replica& replica, const std::string& damaged) {
    const std::string which = "replica " + std::to_string(replica.id) + ", where " + damaged + ", ";
    const auto accepted = [&](const Inspection& found) {
        if (!found.differs.empty()) checks_.violate(which + "finds " + found.differs);
        return found.refused.empty();
    };
    const std::unique_ptr<Disk> started = replica.disk->image("/sim/started");
    const bool opens = accepted(inspect(replica, *started));
    const bool opens_again = accepted(inspect(replica, *started));
    if (opens && !opens_again) checks_.violate(which + "can be read once only");
    const std::unique_ptr<Disk> checked = replica.disk->image("/sim/checked");
    const std::string problem = problems_of(*checked);
    const bool opens_checked = accepted(inspect(replica, *checked));
    if (problem.empty() && !(opens && opens_checked))
        checks_.violate(which + "is refused, and the check has found nothing");
    if (settings_.verbose) say(problem.empty() ? "  no effect" : "  " + problem);
    replica.rotten = !problem.empty();
}

// The operator looks, before the faults stop: what nobody has read since may have rotted, too.
void World::find_rot(Replica& replica) {
    if (replica.up()) end(replica, true);
    replica.disk->restart();
    const std::unique_ptr<Disk> copy = replica.disk->image("/sim/checked");
    if (problems_of(*copy).empty()) {  // it was in what has been cut since
        replica.rotten = replica.rejoins = false;
    } else {
        counts_.add(Count::kRotFoundLater);
        replace_disk(replica);
    }
    set_wake(replica);
}

}  // namespace crane::sim
