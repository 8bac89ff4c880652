// The files that prove who a replica is to its peers. See tls.hpp.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace crane::paxos {

class TlsContext;

/// All in PEM, all given or none. None: the links are not encrypted, which is for loopback alone.
struct TlsFiles {
    std::string ca;           ///< certificates of the authorities that may sign for this cluster, one or more
    std::string certificate;  ///< this replica's
    std::string key;          ///< its private key, readable by its owner only
    /// What has been read of them in this process: used though they can no longer be read again.
    std::shared_ptr<TlsContext> context;
    bool configured() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

/// How it stands with what was read of them, in seconds since 1970.
struct TlsStanding {
    int64_t ends_s = 0;  ///< it, or the authority that signed it, whichever is first; 0: there is none
    int64_t authority_ends_s = 0;  ///< the authority's alone; 0: not known
    std::string problem;           ///< why the files as they are now cannot be used; empty: they are in use
};

}  // namespace crane::paxos
