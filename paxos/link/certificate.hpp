// Certificates of a cluster's replicas: names, making, reading. OpenSSL's libcrypto does the work.
//
// Rules kept here:
//   - a cluster has an authority of its own, whose one purpose is to sign its replicas' certificates;
//   - a certificate names its holder by one URI among its alternative names: crane://CLUSTER/ID for a
//     replica, crane://CLUSTER/ROLE/NAME for an operator (ROLE is read or operate), crane://CLUSTER for the
//     authority. The subject is for people and is never read;
//   - keys are ECDSA P-256; a replica's certificate serves for both ends of a connection, an operator's for
//     the end that asks, and neither signs others.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paxos/core/types.hpp"

namespace crane::paxos {

constexpr size_t kMaxClusterNameBytes = 64;

/// What an operator may do: ask, or all.
enum class OperatorRole { kNone, kRead, kOperate };
/// "read", "operate"; kNone: it is none.
OperatorRole role_named(std::string_view name);

struct Identity {
    std::string cluster;
    ReplicaId replica = kNoReplica;           ///< kNoReplica: the cluster's authority, or an operator
    OperatorRole role = OperatorRole::kNone;  ///< of an operator
    std::string name = {};                    ///< of an operator
    bool operator==(const Identity&) const = default;
};

/// 1 to kMaxClusterNameBytes letters, digits, '-', '.' and '_': what needs no escaping in a URI.
bool usable_cluster_name(std::string_view cluster);
std::string to_uri(const Identity& identity);
/// False when it is not exactly what to_uri() makes.
bool parse_uri(std::string_view uri, Identity& identity);

struct Validity {
    int64_t not_before_s = 0, not_after_s = 0;  ///< since 1970
};
constexpr int64_t kDaySeconds = 86400;

struct PemPair {
    std::string certificate, key;
};

/// All of these throw std::runtime_error with what is wrong.
PemPair make_authority(const std::string& cluster, const Validity& validity);
/// Checks that the authority's certificate and key belong together, and that its certificate outlives the one
/// to be made.
PemPair issue_certificate(const PemPair& authority, ReplicaId replica, const Validity& validity);
/// For an operator of that role, by the same rules. `name` as usable_cluster_name().
PemPair issue_operator_certificate(const PemPair& authority, OperatorRole role, const std::string& name,
                                   const Validity& validity);

struct CertificateInfo {
    Identity identity;
    bool authority = false;
    std::string uri;  ///< empty: names nobody of Crane's
    std::string subject;
    Validity validity;
    std::string fingerprint;  ///< SHA-256, in hexadecimal with colons
};
/// The first certificate in `pem`.
CertificateInfo inspect_certificate(const std::string& pem);

std::string utc_text(int64_t seconds);  ///< 2026-01-31 12:00:00 UTC

}  // namespace crane::paxos
