#include "proxy/output_words.hpp"

#include <string.h>

#include <algorithm>

namespace crane::proxy {

using timebubble::OutputKind;

namespace {

constexpr size_t kExcerptBytes = 64;

}  // namespace

std::string printable(std::string_view bytes) {
    std::string out;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        char text[8];
        if (c == '\n') {
            out += "\\n";
        } else if (c == '\r') {
            out += "\\r";
        } else if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else {
            snprintf(text, sizeof(text), "\\x%02x", byte);
            out += text;
        }
    }
    return out;
}

std::string describe_record(const OutputLogReader& log, size_t excerpt_from) {
    const OutputLogRecord& record = log.record();
    char head[160];
    snprintf(head, sizeof(head), "#%lu %s", log.number(), output_kind_name(record.kind));
    std::string out = head;
    const auto kind = static_cast<OutputKind>(record.kind);
    if (record.connection != 0) {
        snprintf(head, sizeof(head), " connection %lx", record.connection);
        out += head;
    }
    if (record.flags != 0)
        out += kind == OutputKind::kClose ? " (reset)" : " flags " + std::to_string(record.flags);
    out += " clock " + std::to_string(record.clock);
    if (kind == OutputKind::kAdmitted) out += " log index " + std::to_string(log.admitted_index());
    if (kind == OutputKind::kListen || kind == OutputKind::kUnlisten || kind == OutputKind::kDatagramPort ||
        kind == OutputKind::kDatagramPortEnd) {
        timebubble::ListenRecord listen;
        if (log.payload().size() == sizeof(listen)) {
            memcpy(&listen, log.payload().data(), sizeof(listen));
            out += " port " + std::to_string(listen.port);
        }
    }
    if (kind == OutputKind::kExit) {
        timebubble::ExitRecord exit;
        if (log.payload().size() == sizeof(exit)) {
            memcpy(&exit, log.payload().data(), sizeof(exit));
            out += " of pid " + std::to_string(exit.pid) + ", wait status " + std::to_string(exit.status);
        }
    }
    if (kind != OutputKind::kSend && kind != OutputKind::kDatagram) return out;
    out += ", " + std::to_string(record.bytes) + " bytes";
    if (log.hashed()) return out + ", hash " + log.payload_hash().hex();
    const size_t from = excerpt_from > 16 ? excerpt_from - 16 : 0;
    out += from != 0 ? " from " + std::to_string(from) + ": \"…" : ": \"";
    out += printable(log.payload().substr(std::min(from, log.payload().size()), kExcerptBytes)) + "\"";
    if (excerpt_from != 0 || from != 0) {
        out += "; first different byte " + std::to_string(excerpt_from);
    }
    return out;
}

}  // namespace crane::proxy
