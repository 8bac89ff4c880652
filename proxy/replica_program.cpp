// What a server is made of: its program, libraries and so on (checkpoint/inventory.hpp) stand in the log
// where it begins. A replica whose host has others would go on elsewhere when it replays the log, so it does
// not run the server, says what has changed, and looks again now and then.
#include <spdlog/spdlog.h>
#include <string.h>

#include <algorithm>

#include "base/clock.hpp"
#include "proxy/replica.hpp"

namespace crane::proxy {

namespace {

constexpr uint64_t kLookAgainNs = 5'000'000'000;
/// It stands behind the start and the genesis, or alone.
constexpr int kFirstCalls = 3;
constexpr size_t kKept = 16;
constexpr uint64_t kFetchNs = 600'000'000'000;

std::string files_text(const std::string& image) {
    return image.empty() ? "the files of each host" : "the base image " + (checkpoint::kImagePrefix + image);
}

}  // namespace

void Replica::note_program(timebubble::BatchDecoder decoder) {
    timebubble::Call call{};
    for (int i = 0; i < kFirstCalls && decoder.next(call); ++i) {
        timebubble::ProgramPayload head{};
        if (call.kind != timebubble::CallKind::kProgram || call.payload.size() < sizeof(head)) continue;
        memcpy(&head, call.payload.data(), sizeof(head));
        if (head.generation < generation_.fed) continue;
        programs_[head.generation] = call.payload.substr(sizeof(head));
        // The one that is fed, and the latest.
        if (programs_.size() > kKept) programs_.erase(std::next(programs_.begin()));
    }
}

/// Of what is here to what the server is to be made of; empty: none that anybody knows of.
std::string Replica::program_difference() const {
    const auto known = programs_.find(generation_.begun());
    if (known == programs_.end()) return "";  // the log is of an earlier version
    // A server out of an image has its own shim.
    const bool with_shim = program_.image.empty() || generation_.starting != 0;
    return checkpoint::inventory_difference(known->second, domain_.program(), with_shim);
}

/// And nothing else, so that an image of the server that the log is of can be restored here.
bool Replica::shim_is_another() const {
    const auto known = programs_.find(generation_.begun());
    return known != programs_.end() &&
           checkpoint::inventory_difference(known->second, domain_.program(), false).empty();
}

/// Before the server is given its first batch, which says what it is made of.
bool Replica::program_fits() {
    const uint64_t generation = generation_.begun();
    if (native_ || program_.compared == generation) return true;
    if (program_.begins_anew) return false;
    if (programs_.count(generation) == 0) return true;
    const std::string difference = program_difference();
    const std::string image = checkpoint::image_in(programs_.at(generation));
    const bool accepted = config_.accept_changes && (image == domain_.image() || config_.image_is_accepted());
    if (!difference.empty() && !accepted) {
        // What follows in the log may say that it was accepted.
        if (program_.delivering) return false;
        const bool seen = sequencer_.delivered_index() >= program_.log_end ||
                          (looked_ahead_ && ahead_index_ > program_.log_end);
        if (!seen) return false;
        if (image == domain_.image()) {
            domain_.refuse_program(difference);
        } else {
            spdlog::info("the log's server is made of {}, and is begun anew with that", files_text(image));
            domain_.set_first_image(image);
            program_.begins_anew = true;
            events_.lost();
        }
        return false;
    }
    if (!difference.empty())
        spdlog::warn("{} on this host since this cluster's server was started, which is accepted",
                     difference);
    program_.compared = generation;
    programs_.erase(programs_.begin(), programs_.lower_bound(generation));
    return true;
}

/// For the server that is begun next.
void Replica::use_image(const std::string& sum) {
    if (sum == domain_.image()) return;
    spdlog::info("the server is begun on {} from now on", files_text(sum));
    domain_.set_image(sum);
}

/// From whoever has it.
void Replica::fetch_image(const std::string& sum) {
    program_.fetch_ns = monotonic_ns();
    images_->want(sum);
    image_shipping_.want(image_number(sum));
}

void Replica::on_image_fetched() {
    program_.refused_ns = 0;  // looked at in the next round
}

/// Of a log that does not say it, or not any more.
bool Replica::program_is_news() const {
    if (native_ || program_.proposed || generation_.fed_time_ns == 0 || domain_.program().empty())
        return false;
    const auto known = programs_.find(generation_.fed);
    return known == programs_.end() || (config_.accept_changes && known->second != domain_.program());
}

/// One that was refused for it: is it again what it was?
void Replica::watch_program(uint64_t now_ns) {
    // The operator wanted it, and asks no more.
    if (image_shipping_.wanted() != 0 && !domain_.program_refused() && now_ns - program_.fetch_ns > kFetchNs)
        image_shipping_.want(0);
    if (domain_.program_refused() && generation_.starting != 0 && decided_unstarted(generation_.starting)) {
        spdlog::info("the server that this host lacks files for was given up: the next one is begun");
        events_.lost();
        return;
    }
    if (!domain_.program_refused() || program_.looking || now_ns - program_.refused_ns < kLookAgainNs) return;
    program_.refused_ns = now_ns;
    program_.looking = true;
    domain_.look_at_program(domain_.image(), [this] {
        program_.looking = false;
        if (domain_.program().empty()) {
            // Nor is there a file that somebody has to look at.
            if (!domain_.image().empty() && !checkpoint::ImageStore(config_.image_store).has(domain_.image()))
                fetch_image(domain_.image());
            return;
        }
        if (program_difference().empty()) {
            const std::string now = "this host has what the server is made of";
            // Accepted since the image was taken.
            if (!checkpoint::inventory_difference(program_.image, domain_.program(), false).empty() &&
                !program_.image.empty())
                checkpoints_.refuse(now + ", and not what the image is of");
            spdlog::info("{}: it is begun", now);
            events_.lost();
            return;
        }
        const auto later = std::find_if(programs_.begin(), programs_.end(), [&](const auto& one) {
            return one.first > generation_.fed && one.second == domain_.program();
        });
        // The others' later server is made of what is here: what that one began with is enough.
        if (later != programs_.end() && !lacking_)
            lack_checkpoint(history_.last() ? history_.last()->index + 1 : 1);
    });
}

}  // namespace crane::proxy
