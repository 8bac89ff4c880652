// What the store asks of a file system, apart from what Berkeley DB asks it by its own calls (which a process
// can replace with db_env_set_func_*). Together the two let the store run over a simulated disk.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace crane::paxos {

class FileSystem {
  public:
    virtual ~FileSystem() = default;
    /// 0, or an errno value. A directory that exists is fine.
    virtual int make_directory(const std::string& path) = 0;
    virtual bool exists(const std::string& path) = 0;
    virtual int remove(const std::string& path) = 0;  ///< a file: 0, or an errno value
    virtual int make(const std::string& path) = 0;    ///< an empty file
    /// All that anybody wrote to this file, or the names in this directory.
    virtual int sync(const std::string& path) = 0;
    /// A lock on a file, made when missing, that no other process can hold at the same time and that ends
    /// with this one. Not negative: to be given to unlock(). Else a negated errno value: EWOULDBLOCK when it
    /// is held.
    virtual int lock(const std::string& path) = 0;
    virtual void unlock(int lock) = 0;
    virtual uint64_t free_bytes(const std::string& path) = 0;  ///< UINT64_MAX: not known
    virtual int list(const std::string& directory, std::vector<std::string>& names) = 0;  ///< what is in it
    virtual int read(const std::string& path, std::string& bytes) = 0;                    ///< a whole file
    /// A whole file in order, in pieces that take little memory, until `see` says false.
    virtual int read_through(const std::string& path, const std::function<bool(std::string_view)>& see) {
        std::string bytes;
        const int error = read(path, bytes);
        if (error == 0) see(bytes);
        return error;
    }
    /// Writes what is still to be written of this file, and forgets what memory holds of it: what is read
    /// from now on is what the disk has. EBUSY: memory keeps some of it.
    virtual int reread(const std::string& path) = 0;
};

/// The operating system's.
FileSystem& host_files();

}  // namespace crane::paxos
