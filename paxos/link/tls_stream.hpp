// A stream through TLS, upon another stream.
//
// Rules kept here:
//   - OpenSSL works in memory alone: what is sent in one turn becomes records of up to 16 KB that leave with
//     one system call, and what is read comes with one;
//   - what waits for the socket is bounded;
//   - nothing of the user's is sent or handed out before the peer's certificate is accepted.
#pragma once

#include <memory>

#include "paxos/link/connection.hpp"

struct ssl_ctx_st;
struct x509_st;
struct x509_store_ctx_st;

namespace crane::paxos {

/// Throws std::bad_alloc.
std::unique_ptr<Stream> make_tls_stream(ssl_ctx_st* context, std::unique_ptr<Stream> below, bool client);
/// Notes for the stream why a certificate is not accepted; to be set on the context of such streams.
int on_certificate(int accepted, x509_store_ctx_st* store);

/// What is wrong with a certificate, by OpenSSL's number (X509_V_ERR_…), and what to do.
std::string certificate_problem(int error, int depth, x509_st* certificate);

}  // namespace crane::paxos
