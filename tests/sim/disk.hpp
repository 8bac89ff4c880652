// One machine's disk: a file system in memory that knows what a power cut would leave of it.
//
// Rules kept here:
//   - what a process reads is what was written last; what is on the platter is what was synced, and a cut
//     keeps of the rest what a journaling file system could: of each sector some of its writes, oldest
//     first, of the names (created, renamed, removed) some, oldest first. A sync makes its file, and all
//     names so far, durable;
//   - sectors are written as a whole, and a database's pages are not larger than one;
//   - after cut() the old process may go on calling: it is talking to itself. restart() shows what is left.
#pragma once

#include <cerrno>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "paxos/store/file_system.hpp"
#include "random.hpp"

namespace crane::sim {

struct DiskFaults {
    /// Of a sync: EIO. Some of the file is on the platter; the rest is still due, or it is forgotten and
    /// shown all the same, until it is read from the platter again or the machine dies.
    double sync_error = 0;
    double write_error = 0;      ///< of a write: EIO
    bool full = false;           ///< writes fail with ENOSPC
    bool lying = false;          ///< a sync does nothing, and says that it did (a canary)
    bool keeps_showing = false;  ///< what is forgotten, also to those who want the platter (a canary)
};

struct DiskCounts {
    uint64_t writes = 0, syncs = 0, errors = 0, cuts = 0, torn = 0, lost_writes = 0, lost_names = 0,
             removed = 0, forgotten = 0;
};

class Disk : public paxos::FileSystem {
  public:
    struct Write {
        uint64_t offset = 0;
        std::string bytes;
        bool truncates = false;  // the file ends at `offset`
        uint64_t run = 0;        // of the process that wrote it
        bool forgotten = false;  // never comes to the platter
    };
    struct File {
        uint64_t number = 0;
        std::string live;
        std::string synced;
        std::vector<Write> unsynced;
        bool is_log = false;
    };
    using FileRef = std::shared_ptr<File>;

    Disk(std::string root, uint64_t seed, uint64_t sector_bytes);

    const std::string& root() const { return root_; }
    DiskFaults faults;
    /// No more faults, but those that a canary planted.
    void mend() {
        DiskFaults planted;
        planted.lying = faults.lying;
        planted.keeps_showing = faults.keeps_showing;
        faults = planted;
    }
    const DiskCounts& counts() const { return counts_; }
    uint64_t operations() const { return operations_; }

    /// The machine (`power`) or only the process ends now: what is left is decided at once.
    void cut(bool power);
    void cut_after(uint64_t operations, bool power);  ///< 0: never
    bool is_cut() const { return cut_; }
    void restart();
    void erase();  ///< another disk, empty
    void put_back(const Disk& copy);
    /// Nothing of the write-ahead log would be lost; or nothing that an earlier process wrote.
    bool synced() const { return log_synced(UINT64_MAX); }
    bool inherited_synced() const { return log_synced(run_); }
    /// A disk that holds what is on the platter of this one and nothing else.
    std::unique_ptr<Disk> platter(const std::string& root) const;

    // disk_rot.cpp: what only a disk that is going bad does, while no process uses it.
    /// A disk that holds what the next process would find on this one.
    std::unique_ptr<Disk> image(const std::string& root) const;
    const std::string& synced_bytes(const std::string& path) const { return names_.at(path)->synced; }
    void damage(const std::string& path, uint64_t offset, const std::string& bytes);  ///< of those synced
    void lose(const std::string& path);

    /// Of names, sizes, operations: not of contents, in which Berkeley DB puts times and process numbers.
    uint64_t shape_hash() const;
    std::string describe() const;

    /// What Berkeley DB's hooks need: 0 or an errno value.
    int open(const std::string& path, bool create, bool exclusive, bool truncate, FileRef& file);
    int write(File& file, uint64_t offset, const char* bytes, size_t count);
    int truncate(File& file, uint64_t size);
    int sync(File& file);
    int rename(const std::string& from, const std::string& to);
    int unlink(const std::string& path);
    FileRef find(const std::string& path) const;
    std::vector<std::string> names() const;  ///< without the root

    /// FileSystem
    int make_directory(const std::string&) override { return 0; }
    bool exists(const std::string& path) override { return find(path) != nullptr; }
    int remove(const std::string& path) override { return unlink(path); }
    int make(const std::string& path) override {
        FileRef file;
        return open(path, true, false, false, file);
    }
    int sync(const std::string& path) override {
        File names;
        if (path == root_) return sync(names);
        const FileRef file = find(path);
        return file == nullptr ? ENOENT : sync(*file);
    }
    int list(const std::string&, std::vector<std::string>& found) override {
        found = names();
        return 0;
    }
    int read(const std::string& path, std::string& bytes) override {
        const FileRef file = find(path);
        if (file == nullptr) return ENOENT;
        bytes = file->live;
        return 0;
    }
    int reread(const std::string& path) override;
    int lock(const std::string& path) override;
    void unlock(int lock) override;
    uint64_t free_bytes(const std::string&) override { return faults.full ? 0 : UINT64_MAX; }

  private:
    using Names = std::map<std::string, FileRef>;
    struct NameChange {
        std::string name;
        FileRef file;  // null: removed
    };

    static void put(const Write& write, std::string& content);
    bool log_synced(uint64_t before_run) const;
    bool operate();  ///< counts; false when the cut came first
    void rename_in(Names& names, const NameChange& change) const;
    FileRef survivor(const File& file, bool power);
    void keep_some(const File& file, File& left);

    const std::string root_;
    mutable Random random_;
    const uint64_t sector_bytes_;
    Names names_;
    Names synced_names_;
    std::vector<NameChange> name_changes_;
    Names left_;  ///< after a cut
    Names left_synced_;
    uint64_t next_file_ = 1;
    uint64_t operations_ = 0;
    uint64_t run_ = 0;
    uint64_t cut_at_ = UINT64_MAX;
    bool cut_power_ = true;
    bool cut_ = false;
    int locks_ = 0;
    DiskCounts counts_;
};

/// Routes Berkeley DB's system calls on paths below /sim/ to the disks. Once per process.
void install_disk_hooks();

}  // namespace crane::sim
