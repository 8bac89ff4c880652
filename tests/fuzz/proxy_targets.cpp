// What craneds say to each other beside consensus, the batches that they decide, and what a domain writes.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "proxy/attached_clients.hpp"
#include "proxy/carrier.hpp"
#include "proxy/divergence.hpp"
#include "proxy/domain_link.hpp"
#include "proxy/ingress.hpp"
#include "proxy/operator_mail.hpp"
#include "targets.hpp"
#include "timebubble/batch.hpp"

namespace crane::fuzz {

using namespace crane::timebubble;
using namespace crane::proxy;

void fuzz_batch(std::string_view bytes) {
    // Aligned as in the shared memory, and no longer than it is: what is read beyond is found.
    const std::unique_ptr<uint8_t[]> copy(new uint8_t[bytes.size()]);
    std::copy(bytes.begin(), bytes.end(), copy.get());
    BatchDecoder decoder;
    if (!decoder.open(copy.get(), bytes.size())) return;
    const BatchHeader header = decoder.header();
    BatchEncoder encoder;
    std::vector<Call> calls;
    for (Call call; decoder.next(call);) {
        must(call.payload.data() >= reinterpret_cast<const char*>(copy.get()) &&
                 call.payload.data() + call.payload.size() <=
                     reinterpret_cast<const char*>(copy.get()) + bytes.size(),
             "a call's payload lies outside its batch");
        must(encoder.add(call.kind, call.connection, call.payload), "a batch that fits does not fit");
        calls.push_back(call);
    }
    must(calls.size() == header.calls, "not as many calls as the batch says");
    const std::string again = encoder.finish(header.timestamp_ns, header.grant_clocks);
    must(again == bytes, "a batch that was decoded encodes to other bytes");
}

void fuzz_admissions(std::string_view bytes) {
    const std::vector<Admission> read = decode_admissions(bytes);
    must(read.size() <= AdmissionHistory::kKept, "more admissions than are kept");
    const std::string again = encode_admissions(read);
    must(bytes.substr(0, again.size()) == again, "admissions encode to other bytes");
    AdmissionHistory history;
    for (uint64_t i = 1; i <= 8; ++i) history.add({i, {i, i}, i});
    DivergenceCheck check(1, {1, 2, 3});
    for (size_t i = 0; i < read.size(); ++i) {
        const uint32_t from = 2 + i % 2;
        if (i % 3 == 0) check.report(from, read[i], history);
        if (i % 3 == 1)
            check.evidence(from, {read.begin(), read.begin() + static_cast<ptrdiff_t>(i)}, history);
        if (i % 3 == 2) check.own(history);
        if (i % 31 == 30) check.begin_at(read[i].index);
        if (const auto query = check.take_query()) {
            const auto answer = history.range(query->first, query->last);
            must(answer.size() <= AdmissionHistory::kKept, "an answer without bound");
            check.evidence(1, answer, history);
        }
    }
    for (const DivergenceCheck::Finding& one : check.take_findings())
        must(one.replica <= 3, "somebody is blamed who is no replica");
}

namespace {

constexpr uint32_t kSelf = 1;

// A client of this replica.
struct Client final : Endpoint {
    EndpointUser* user = nullptr;
    bool allowed = false;
    uint64_t heard = 0;

    void set_user(EndpointUser* now) override { user = now; }
    void allow_input(bool yes) override { allowed = yes; }
    void send(std::string_view bytes) override { heard += bytes.size(); }
    void probe(const timebubble::ProbeRecord&) override {}
    void finish() override {}
    void close() override { user = nullptr; }
    void reset() override { user = nullptr; }

    void act(uint8_t what) {
        if (!user) return;
        const std::string bytes(std::min<uint64_t>(what, user->input_room()), 'x');
        if (what % 16 == 0) {
            EndpointUser* const told = user;
            user = nullptr;
            told->on_gone();
        } else if (what % 16 == 1) {
            user->on_input_end();
        } else if (what % 4 == 2) {
            user->on_taken(what * 1000);
        } else if (allowed && !bytes.empty()) {
            user->on_input(bytes);
        }
    }
};

// One message of a peer: what the input says, in the form that a peer would give it.
std::string next_message(Input& in, uint64_t sequence) {
    std::string message;
    const auto put = [&](const auto& value) {
        message.append(reinterpret_cast<const char*>(&value), sizeof value);
    };
    const uint8_t control = in.number<uint8_t>();
    put(uint64_t{control & 1 ? 2u : 1u});   // another incarnation
    put(sequence + (control & 2 ? 7 : 0));  // a gap
    put(uint64_t{control >> 2 & 3u});       // view
    put(uint64_t{control >> 4 & 1u} + 1);   // round
    for (int frames = control >> 5; frames > 0; --frames) {
        const uint8_t type = in.number<uint8_t>();
        const uint8_t which = in.number<uint8_t>();
        std::string payload(in.take(in.number<uint8_t>()));
        if (type & 0x80) {  // positions that may fit
            const uint64_t offset = payload.empty() ? 0 : static_cast<uint8_t>(payload[0]);
            payload.insert(0, reinterpret_cast<const char*>(&offset), sizeof offset);
        }
        if (type & 0x40) payload.resize(sizeof(ConnectPayload));
        put(uint32_t{type % 24u} | (which & 0x80u) << 1);
        put(static_cast<uint32_t>(payload.size() + (control == 0xff ? 1 : 0)));
        put(connection_id(which % 3 + 1, which / 3 % 8));
        message.append(payload);
    }
    return message;
}

}  // namespace

void fuzz_carrier(std::string_view bytes) {
    Input in(bytes);
    size_t said = 0;
    Batcher batcher;
    DomainAccount account(1 << 20);
    std::vector<std::unique_ptr<Client>> endpoints;
    AttachedClients clients(kSelf, true, [&] { return endpoints.size() % 2 == 0; });
    Carrier carrier(kSelf, clients, [&](uint32_t, const std::string& message) {
        said += message.size();
        return said % 5 != 0;
    });
    Ingress ingress({kSelf, 1 << 20, 10}, batcher, account,
                    [&](uint32_t replica) { return carrier.reply_to(replica); });
    carrier.set_ingress(&ingress);
    for (uint64_t now = 0; !in.empty() && now < 64; ++now) {
        const uint8_t what = in.number<uint8_t>();
        const uint32_t from = 2 + (what & 1);
        const bool up = what & 2;
        switch (what >> 4) {
            case 15:
                ingress.on_link(from, up, now);
                carrier.on_link(from, up);
                break;
            case 14:
                if (!endpoints.empty()) endpoints[(what & 15u) % endpoints.size()]->act(in.number<uint8_t>());
                break;
            case 13:
                carrier.on_message(from, in.rest());
                break;
            case 12: {
                const uint32_t leader = what & 3;
                ingress.stop();
                batcher.clear();
                account.forget_proposals();
                carrier.set_view(what >> 2 & 3, leader);
                if (leader == kSelf) ingress.lead(account.table(), now);
                break;
            }
            case 11:
                endpoints.push_back(std::make_unique<Client>());
                clients.attach(endpoints.back().get(), {}, now + 8);
                break;
            case 10:
                ingress.tick(now);
                clients.reap(now);
                break;
            default:
                carrier.on_message(from, next_message(in, now));
        }
        carrier.end_turn();
    }
    must(said < bytes.size() * 256 + 100'000, "answers without bound");
    must(batcher.bytes() < bytes.size() * 256 + 100'000, "calls without bound");
    uint64_t held = clients.held_bytes();
    must(held <= 64 * 256, "more input held than was read");
}

namespace {

// A segment of plain memory: the rings' second halves are what is written behind their ends.
struct PlainSegment {
    std::vector<uint64_t> control = std::vector<uint64_t>(kControlBytes / 8);
    std::vector<uint64_t> input = std::vector<uint64_t>(2 * kInputRingBytes / 8);
    std::vector<uint64_t> output = std::vector<uint64_t>(2 * kOutputRingBytes / 8);
    TransportView view() {
        return {reinterpret_cast<Control*>(control.data()), reinterpret_cast<uint8_t*>(input.data()),
                reinterpret_cast<uint8_t*>(output.data())};
    }
};

constexpr size_t kWipedBytes = 512 * 1024;

// One thing that a domain may write, well formed or not.
void scribble(Input& in, const TransportView& view) {
    Control& control = *view.control;
    switch (in.number<uint8_t>() % 6) {
        case 0: {  // a record as it should be, but for what the input says
            const OutputHeader header{in.number<uint8_t>(),
                                      static_cast<OutputKind>(in.number<uint8_t>() % 12),
                                      0,
                                      in.number<uint8_t>(),
                                      1,
                                      1};
            const std::string_view payload = in.take(header.bytes);
            const uint64_t place = control.output.head % kOutputRingBytes;
            if (place > kWipedBytes / 2) return;  // what is not wiped would be there in the next run
            uint8_t* at = view.output + place;
            std::memcpy(at, &header, sizeof header);
            std::memcpy(at + sizeof header, payload.data(), payload.size());
            control.output.head += sizeof header + padded(header.bytes);
            return;
        }
        case 1:
            control.output.head = in.number<uint64_t>();
            return;
        case 2:
            control.output.tail = in.number<uint64_t>();
            return;
        case 3:
            control.input.tail = in.number<uint64_t>();
            return;
        case 4: {
            const size_t at = in.number<uint16_t>() % (sizeof(Control) - 8);
            const uint64_t word = in.number<uint64_t>();
            std::memcpy(reinterpret_cast<uint8_t*>(&control) + at, &word, sizeof word);
            return;
        }
        default: {
            const uint16_t at = in.number<uint16_t>();
            const std::string_view bytes = in.take(in.number<uint8_t>());
            std::memcpy(view.output + at, bytes.data(), bytes.size());
        }
    }
}

}  // namespace

void fuzz_rings(std::string_view bytes) {
    static PlainSegment segment;  // large: only what this may write is wiped
    const TransportView view = segment.view();
    std::fill(segment.control.begin(), segment.control.end(), 0);
    std::fill(segment.output.begin(), segment.output.begin() + kWipedBytes / 8, 0);
    DomainLink link(view);
    Input in(bytes);
    uint64_t fed = 0, admitted = 0;
    const auto look = [&](const OutputHeader& header, std::string_view payload) {
        must(payload.size() == header.bytes && payload.size() <= kMaxOutputPayload,
             "a payload of another size");
        if (header.kind != OutputKind::kAdmitted) return;
        AdmittedRecord record;
        std::memcpy(&record, payload.data(), sizeof record);
        must(record.index == ++admitted, "a batch is admitted out of its order");
    };
    try {
        for (int turn = 0; !in.empty() && turn < 256; ++turn) {
            scribble(in, view);
            if (link.feed(fed + 1, "batch")) ++fed;
            must(link.drain(look, 65536) <= 65536 / sizeof(OutputHeader) + 1, "more than was asked for");
            must(link.unadmitted() == fed - admitted, "batches are lost from the count");
            must(link.refusal().size() <= sizeof(DomainStatus::refusal), "a refusal longer than its place");
            (void)link.prepare_sleep();
            link.awake();
        }
    } catch (const std::runtime_error&) {
        // The domain is ended.
    }
}

void fuzz_letters(std::string_view bytes) {
    Input in(bytes);
    size_t sent = 0, done = 0;
    OperatorMail mail(
        [&](uint32_t, const std::string& message) {
            must(message.size() > 1 + sizeof(uint64_t), "a letter without a number or words");
            return ++sent % 5 != 0;
        },
        [&](const nlohmann::json& request, const OperatorMail::Reply& reply) {
            must(request.is_object(), "an order that is no object");
            if (++done % 3 == 0) throw std::runtime_error("no such order");
            reply({{"did", request.value("do", std::string())}});
        });
    uint64_t asked = 0;
    for (unsigned letters = 0; !in.empty() && letters < 256; ++letters) {
        const uint8_t what = in.number<uint8_t>();
        std::string body(in.take(in.number<uint8_t>()));
        if (what % 3 == 0) {
            const uint64_t number = mail.ask(1, {{"do", what}});
            must(number == 0 || number == ++asked, "orders are not numbered one after another");
        } else if (what % 3 == 1) {
            const size_t before = sent;
            mail.on_request(2, body);
            must(sent <= before + 1, "more than one answer to an order");
        } else {
            if (what & 0x80) body.insert(0, reinterpret_cast<const char*>(&asked), sizeof asked);
            mail.on_answer(body);
        }
    }
    for (uint64_t number = asked + 1; number < asked + 256; ++number)
        must(mail.answer(number).empty(), "an answer to what was never asked");
}

}  // namespace crane::fuzz
