// What the log survives: `durability = "disk"`, a loss of power on all hosts at once; "memory", the end of
// any process, and a loss of power or a crash of the operating system on a minority of the hosts.
//
// Under "memory" a commit is in the operating system's memory when it is acknowledged. That outlives craned,
// and not the host: what a host finds in its database after a crash may lack what it has acknowledged, and a
// replica that votes from it could lose decided entries. So a database that was written so is marked with the
// host's boot, outside the database and before anything in it counts:
//   - the same boot: the system's memory has all, as if nothing had happened;
//   - another one: the database is lost. It is moved aside, and this replica rejoins (docs/paxos.md, Losing a
//     database). The mark stays until the new one is there and remembers that it rejoins;
//   - a clean end, and a start under "disk" in the same boot, write the database to disk and remove the mark.
#pragma once

#include <string>

namespace crane::proxy {

/// The running system's, anew at each boot.
std::string boot_id();

class LogDurability {
  public:
    /// Looks at the mark, before the database is opened, and moves a lost one aside. Throws
    /// std::runtime_error when that, or a mark, or what is to be on disk cannot be written.
    LogDurability(const std::string& state_dir, bool in_memory, std::string boot = boot_id());

    /// What was acknowledged may be missing: the replica is to begin as one that has lost its database.
    bool lost() const { return lost_; }
    /// A database is there now, and remembers what lost() said.
    void opened();
    /// It is closed, in order: from now on it outlives the host.
    void closed();

  private:
    void mark() const;
    void unmark() const;
    void sync_database() const;

    std::string state_dir_;
    bool in_memory_;
    std::string boot_;
    bool lost_ = false;
};

/// Of a database that is not on disk, and that the host has lost with its memory: what the operator has to
/// know.
bool is_lost_with_memory(const std::string& state_dir);
/// The operator takes the database as it is.
void accept_database(const std::string& state_dir);

}  // namespace crane::proxy
