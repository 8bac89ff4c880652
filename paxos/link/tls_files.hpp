// The files that prove who a replica is to its peers. See tls.hpp.
#pragma once

#include <string>

namespace crane::paxos {

/// All in PEM, all given or none. None: the links are not encrypted, which is for loopback alone.
struct TlsFiles {
    std::string ca;           ///< certificates of the authorities that may sign for this cluster, one or more
    std::string certificate;  ///< this replica's
    std::string key;          ///< its private key, readable by its owner only
    bool configured() const { return !ca.empty() || !certificate.empty() || !key.empty(); }
};

}  // namespace crane::paxos
