// Who may speak to this replica, and under which certificate this one does. TLS 1.3 by OpenSSL.
//
// Rules kept here:
//   - both ends show a certificate, and only those signed by the cluster's own authority count: the system's
//     authorities are never asked;
//   - the certificate names cluster and replica (certificate.hpp). What it names is compared with who the
//     peer says it is (Transport), on both ends;
//   - no session is resumed and no ticket given: every connection proves itself anew;
//   - files that have changed are used for the next connection. Ones that are not usable are reported, and
//     what was there before is used on; they are tried again, for what is wrong with them may pass.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paxos/link/certificate.hpp"
#include "paxos/link/connection.hpp"
#include "paxos/link/peer_address.hpp"
#include "paxos/link/tls_files.hpp"

namespace crane::paxos {

constexpr int64_t kRenewalWarningDays = 30;

class TlsContext {
  public:
    /// Reads and checks the files. Throws std::runtime_error for the operator: which file, what is wrong with
    /// it, and what to do.
    TlsContext(TlsFiles files, Identity self);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    /// Looks whether the files have changed, and warns in the log, once a day, when the certificate ends
    /// soon. Cheap when nothing has changed.
    void refresh();
    /// Wraps a stream whose connection is made, or being made.
    std::unique_ptr<Stream> secure(std::unique_ptr<Stream> below, bool client) const;

    const CertificateInfo& own() const;
    TlsStanding standing() const;
    /// Of the certificate, or of the authority that signed it, whichever ends first. Empty: not needed yet.
    std::string renewal_warning(int64_t now_s) const;
    uint64_t loads() const { return loads_; }  ///< how often the files were taken into use

  private:
    struct Loaded;
    struct Stamp;

    void reload(bool changed);

    const TlsFiles files_;
    const Identity self_;
    std::unique_ptr<Stamp> stamp_;
    std::unique_ptr<Loaded> loaded_;
    uint64_t loads_ = 0;
    std::string problem_;  ///< as in TlsStanding
    int64_t tried_s_ = 0;  ///< the refused files, last
    int64_t next_warning_s_ = 0;
};

/// When that one of `authorities` ends which signed `certificate`, since 1970; the last, where several did,
/// as when an authority's own certificate was renewed. 0: none did. Both are PEM.
int64_t authority_ends_s(const std::string& certificate, const std::string& authorities);

/// Why a peer that proved to be `shown` is not `expected`, and what to do. Empty: it is.
std::string identity_mismatch(const Identity& shown, const Identity& expected);
/// Empty, or why these replicas may not speak to each other unencrypted, and the commands that change it.
std::string plaintext_refusal(const std::vector<PeerAddress>& members, const std::string& cluster);

}  // namespace crane::paxos
