#include "proxy/checkpoint_shipping.hpp"

#include <event2/event.h>
#include <spdlog/spdlog.h>

#include <nlohmann/json.hpp>

#include "base/clock.hpp"

namespace crane::proxy {

namespace {

constexpr timeval kTick{0, 10'000};

}  // namespace

CheckpointShipping::CheckpointShipping(event_base* base, const std::shared_ptr<CheckpointFiles>& files,
                                       uint64_t bytes_per_s, const ShipSend& send,
                                       std::function<void(uint64_t)> fetched)
    : worker_(std::make_unique<Worker>(base, "crane-ship")),
      mail_(files, send,
            [this](std::function<void()> job, std::function<void()> done) {
                worker_->post(std::move(job), std::move(done));
            },
            {std::move(fetched), [](const std::string& text) { spdlog::info("{}", text); }},
            // A life begins at another moment than the one before, whoever sets the clock.
            {bytes_per_s, kShipChunkBytes, realtime_ns() ^ boottime_ns() << 20}) {
    timer_ = evtimer_new(
        base,
        [](int, short, void* self) {
            static_cast<CheckpointShipping*>(self)->armed_ = false;
            static_cast<CheckpointShipping*>(self)->look();
        },
        this);
    mail_.tick(monotonic_ns());
}

CheckpointShipping::~CheckpointShipping() {
    event_free(timer_);
    worker_.reset();  // first: what it has done is told to nobody any more
}

/// While there is something to do, time goes on.
void CheckpointShipping::look() {
    mail_.tick(monotonic_ns());
    if (armed_ || mail_.idle()) return;
    armed_ = true;
    evtimer_add(timer_, &kTick);
}

void CheckpointShipping::on_message(uint32_t from, std::string_view message, bool offers) {
    mail_.on_message(from, message, offers);
    look();
}

void CheckpointShipping::on_link(uint32_t peer, bool up) {
    mail_.on_link(peer, up);
    look();
}

void CheckpointShipping::want(uint64_t min_index) {
    mail_.fetch().want(min_index);
    look();
}

std::set<uint64_t> CheckpointShipping::held() const {
    return mail_.source().held(monotonic_ns());
}

nlohmann::json CheckpointShipping::status() const {
    const CheckpointFetch& fetch = mail_.fetch();
    if (fetch.wanted() == 0) return nullptr;
    const CheckpointFetch::Progress progress = fetch.progress();
    return {{"wanted", fetch.wanted()}, {"index", progress.index},   {"bytes", progress.bytes},
            {"total", progress.total},  {"source", progress.source}, {"error", fetch.error()}};
}

}  // namespace crane::proxy
