// What `crane audit` states, signed: up to which record all replicas of a cluster have sent the same.
//
// A statement is a file of two lines. The first is what is stated, one JSON object; the second is the
// signature over the bytes of the first, with the certificate (or, where a cluster has none, the public key)
// that it is checked by.
//
// Rules kept here:
//   - a statement is believed only by somebody's own authority or public key, never by what it brings along;
//   - it appears whole or not at all, and on the disk.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "proxy/config.hpp"

namespace crane::proxy {

constexpr size_t kMaxStatementBytes = 256 * 1024;

struct SigningKey {
    std::string key;          ///< PEM
    std::string certificate;  ///< PEM; empty: none, the public key goes with the statement
};

/// The replica's own for TLS; where it has none, an Ed25519 key in `own_dir` (audit.key and audit.pub), made
/// if need be.
SigningKey signing_key(const Config& config, const std::string& own_dir);

/// Both lines. `statement` becomes one line.
std::string sign_statement(const nlohmann::json& statement, const SigningKey& key);

struct CheckedStatement {
    std::string statement;  ///< JSON, as it was signed
    std::string signer;     ///< whose certificate; "": a key without one
};
/// Throws std::runtime_error with what is wrong. `authority`: PEM, certificates of the authority or a public
/// key.
CheckedStatement check_statement(const std::string& text, const std::string& authority);

/// In place of what is there.
void replace_file(const std::string& path, const std::string& text, unsigned mode = 0644);
/// At most kMaxStatementBytes; throws.
std::string read_small_file(const std::string& path);

}  // namespace crane::proxy
