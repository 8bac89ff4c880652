// Looking at a copy of a replica's disk: with the store itself, and with the offline check.
#include <algorithm>

#include "paxos/core/describe.hpp"
#include "paxos/store/offline.hpp"
#include "world.hpp"

namespace crane::sim {

using namespace paxos;

namespace {

// Empty, or the first entry that is not the one that must be there.
std::string compare_log(const BdbStore& store, const StoredState& found, const Shadow& shadow) {
    std::vector<Entry> entries;
    for (uint64_t index = found.start.index + 1; index <= found.end.index; index += entries.size()) {
        entries.clear();
        store.read(index, found.end.index, 1 << 16, entries);
        for (const Entry& entry : entries)
            if (!shadow.holds(entry.position())) return "entry " + describe(entry.position());
    }
    return "";
}

}  // namespace

World::Inspection World::inspect(const Replica& replica, Disk& copy) const {
    const Mount mount(copy);
    StoreOptions options;
    options.directory = copy.root();
    options.cluster_id = "simulation";
    options.replica = replica.id;
    options.sizes = profile_.sizes;
    options.files = &copy;
    Shadow shadow = replica.shadow;
    Inspection result;
    try {
        BdbStore store(options);
        const StoredState found = store.load();
        result.differs = shadow.compare(found);
        if (!result.differs.empty() && replica.otherwise) {
            shadow = *replica.otherwise;
            if (shadow.compare(found).empty()) result.differs.clear();
        }
        if (result.differs.empty()) result.differs = compare_log(store, found, shadow);
    } catch (const StorageError& error) {
        result.refused = error.what();
    }
    return result;
}

std::string World::problems_of(Disk& copy) {
    counts_.add(Count::kStoresVerified);
    const Mount mount(copy);
    try {
        const StoreReport report = verify_store(copy.root(), &copy);
        return report.problems.empty() ? "" : report.problems.front();
    } catch (const StorageError& error) {
        return error.what();
    }
}

// Whether what is on the platter, and nothing else, is what was acknowledged.
void World::look_at_platter(Replica& replica) {
    if (!replica.shadow.exists() || replica.rotten || replica.disk->is_cut()) return;
    counts_.add(Count::kPlattersOpened);
    const std::unique_ptr<Disk> copy = replica.disk->platter("/sim/platter");
    const Inspection found = inspect(replica, *copy);
    const std::string& wrong = found.refused.empty() ? found.differs : found.refused;
    if (!wrong.empty())
        checks_.violate("on the platter of replica " + std::to_string(replica.id) + " is " + wrong);
}

}  // namespace crane::sim
