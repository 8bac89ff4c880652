#include "interpose/core/egress.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/epoll.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "interpose/core/addresses.hpp"
#include "interpose/core/socket_table.hpp"

namespace crane::interpose {

using timebubble::OutputKind;

namespace {

uint64_t next_id() {
    Egress& e = domain().egress;
    return timebubble::egress_id(e.generation ? e.generation : 1, ++e.numbers);
}

size_t append(char* text, size_t at, const char* more) {
    const size_t bytes = strlen(more);
    std::memcpy(text + at, more, bytes + 1);
    return at + bytes;
}

/// `what`: a text that the address follows.
void refuse_way(const char* what, const Address& to) {
    char text[200], port[8] = {}, *digit = port + sizeof(port) - 1;
    for (uint32_t left = to.port; digit == port + sizeof(port) - 1 || left; left /= 10)
        *--digit = static_cast<char>('0' + left % 10);
    size_t at = append(text, 0, what);
    if (to.family == AF_INET6) at = append(text, at, "[");
    inet_ntop(to.family, to.bytes, text + at, INET6_ADDRSTRLEN);
    at += strlen(text + at);
    if (to.family == AF_INET6) at = append(text, at, "]");
    at = append(text, at, ":");
    at = append(text, at, digit);
    append(text, at, "): the setting egress = \"primary\" lets it out");
    refuse_call(text);
}

/// Each address once; of many the first ones.
void refuse(const Address& to) {
    Egress& e = domain().egress;
    for (uint32_t i = 0; i < e.refused_count; ++i)
        if (e.refused[i].port == to.port && same_host(e.refused[i], to)) return;
    if (e.refused_count == kRefusalsTold) return;
    e.refused[e.refused_count++] = to;
    refuse_way("a connection from the server to the outside (connect to ", to);
}

void hash_in(uint32_t index, uint64_t connection) {
    VirtualSocket& s = socket_at(index);
    s.connection = connection;
    uint32_t& bucket = connection_bucket(connection);
    s.hash_next = bucket;
    bucket = index + 1;
}

void connect_failed(uint32_t index, int error) {
    VirtualSocket& s = socket_at(index);
    unhash_connection(index);
    --domain().egress.open;
    s.state = SocketState::kNew;
    s.connect_error = error;
    s.outcome_untold = 1;
    notify(index, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLHUP | EPOLLERR);
}

}  // namespace

bool egress_allowed() {
    return runtime.view.control->egress == static_cast<uint32_t>(timebubble::EgressPolicy::kPrimary);
}

void refuse_name_server(const Address& to) {
    Egress& e = domain().egress;
    if (e.name_server_refused) return;
    e.name_server_refused = 1;
    refuse_way("a question from the server to a name server outside (", to);
}

int egress_connect(uint32_t index, const Address& to) {
    if (!egress_allowed() || is_for_many(to)) {
        refuse(to);
        return -ENETUNREACH;
    }
    Egress& e = domain().egress;
    if (e.open == timebubble::kMaxEgress) return -EADDRNOTAVAIL;
    VirtualSocket& s = socket_at(index);
    ++e.open;
    hash_in(index, next_id());
    s.state = SocketState::kConnecting;
    s.connect_error = 0;
    s.outcome_untold = 0;
    if (!s.bound) s.local.port = next_free_port();
    s.bound = 1;
    s.peer = as_family(to, s.local.family);
    s.window_end = timebubble::kFirstWindowBytes;
    timebubble::EgressRecord record{to.family, to.port, {}};
    std::memcpy(record.address, to.bytes, sizeof(record.address));
    emit(OutputKind::kConnect, s.connection, 0, &record, sizeof(record));
    return -EINPROGRESS;
}

int egress_outcome(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    if (s.state == SocketState::kConnecting) return -EINPROGRESS;
    s.outcome_untold = 0;
    if (s.state == SocketState::kConnected) return 0;
    const int error = egress_take_error(index);
    return error ? -error : -ECONNABORTED;  // SO_ERROR has told it
}

void egress_give_up(uint32_t index) {
    send_close(index, true);
    connect_failed(index, ECONNRESET);
}

int egress_take_error(uint32_t index) {
    VirtualSocket& s = socket_at(index);
    const int error = s.connect_error;
    s.connect_error = 0;
    return error;
}

void egress_connected(uint64_t connection, const char* payload, size_t bytes) {
    timebubble::ConnectedPayload call;
    if (bytes != sizeof(call)) return;
    std::memcpy(&call, payload, sizeof(call));
    const uint32_t index = find_connection(connection);
    if (index == kNone || socket_at(index).state != SocketState::kConnecting) {
        // Closed meanwhile: what the primary has opened is to be ended.
        if (call.error == 0) emit(OutputKind::kClose, connection, 1, nullptr, 0);
        return;
    }
    if (call.error != 0) {
        connect_failed(index, call.error);
        return;
    }
    VirtualSocket& s = socket_at(index);
    Address local{call.family, call.local_port, {}};
    std::memcpy(local.bytes, call.local, sizeof(local.bytes));
    s.local = as_family(local, s.local.family);
    s.state = SocketState::kConnected;
    s.outcome_untold = 1;
    if (s.probes != timebubble::ProbeRecord{}) tell_probes(s);
    notify(index, EPOLLOUT);
}

void egress_started(const char* payload, size_t bytes) {
    uint64_t generation = 0;
    if (bytes < sizeof(generation)) return;
    std::memcpy(&generation, payload, sizeof(generation));
    domain().egress.generation = generation;
}

// --- names

uint32_t ask_for_name(const char* name) {
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes > timebubble::kMaxNameBytes) return kNone;
    for (uint32_t i = 0; i < timebubble::kMaxQuestions; ++i) {
        Question& one = domain().egress.questions[i];
        if (one.number != 0) continue;
        one = {};
        one.number = next_id();
        emit(OutputKind::kResolve, one.number, 0, name, bytes);
        return i;
    }
    return kNone;
}

uint64_t question_key(uint32_t question) {
    return make_key(ObjectKind::kSocket, question | 0x4000'0000);
}

void name_resolved(uint64_t connection, const char* payload, size_t bytes) {
    for (uint32_t i = 0; i < timebubble::kMaxQuestions; ++i) {
        Question& one = domain().egress.questions[i];
        if (one.number != connection || one.answered || bytes > sizeof(one.answer)) continue;
        std::memcpy(one.answer, payload, bytes);
        one.bytes = static_cast<uint32_t>(bytes);
        one.answered = 1;
        scheduler().signal(question_key(i), ~uint32_t{0});
    }
}

int take_answer(uint32_t question, timebubble::ResolvedAddress* addresses, uint32_t& count) {
    Question& one = domain().egress.questions[question];
    timebubble::ResolvedPayload head{};
    count = 0;
    if (one.bytes < sizeof(head)) {
        one.number = 0;
        return EAI_FAIL;
    }
    std::memcpy(&head, one.answer, sizeof(head));
    const uint64_t there = (one.bytes - sizeof(head)) / sizeof(*addresses);
    count = head.addresses < there ? head.addresses : static_cast<uint32_t>(there);
    std::memcpy(addresses, one.answer + sizeof(head), count * sizeof(*addresses));
    one.number = 0;
    return head.error == 0 && count == 0 ? EAI_NONAME : head.error;
}

}  // namespace crane::interpose
