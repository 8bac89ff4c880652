#include "proxy/image_files.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <nlohmann/json.hpp>

namespace crane::proxy {

namespace fs = std::filesystem;
using checkpoint::File;
using checkpoint::file_error;

namespace {

constexpr char kArriving[] = ".fetch-";
constexpr size_t kNumberDigits = 15;
constexpr uint64_t kMaxImageBytes = 1ULL << 40;

std::string manifest_of(const std::string& sum, uint64_t bytes) {
    return nlohmann::json{{"image", checkpoint::kImagePrefix + sum}, {"bytes", bytes}}.dump();
}

/// 0: it does not say, or what cannot be.
uint64_t bytes_in(const std::string& manifest) {
    const auto json = nlohmann::json::parse(manifest, nullptr, false);
    if (!json.is_object() || !json.contains("bytes") || !json["bytes"].is_number_unsigned()) return 0;
    const uint64_t bytes = json["bytes"];
    return bytes <= kMaxImageBytes ? bytes : 0;
}

CheckpointName name_of(const std::string& sum, const std::string& manifest) {
    return {image_number(sum), checkpoint::sum_of(manifest)};
}

void check_room(const std::string& folder, uint64_t wanted_bytes, uint64_t reserve_bytes) {
    struct statvfs info {};
    if (statvfs(folder.c_str(), &info) != 0) throw file_error("look at", folder, errno);
    const uint64_t free_bytes = uint64_t{info.f_bavail} * info.f_frsize;
    if (free_bytes > reserve_bytes && free_bytes - reserve_bytes >= wanted_bytes) return;
    throw std::runtime_error("a base image of " + std::to_string(wanted_bytes >> 20) +
                             " MiB cannot come to " + folder + ": " + std::to_string(free_bytes >> 20) +
                             " MiB are free, of which " + std::to_string(reserve_bytes >> 20) +
                             " are kept: free some space");
}

}  // namespace

uint64_t image_number(const std::string& sum) {
    return std::stoull(sum.substr(0, kNumberDigits), nullptr, 16) + 1;
}

void ImageFiles::want(const std::string& sum) {
    const std::lock_guard<std::mutex> hold(lock_);
    wanted_ = sum;
}

std::string ImageFiles::wanted_sum() const {
    const std::lock_guard<std::mutex> hold(lock_);
    return wanted_;
}

std::string ImageFiles::called(uint64_t) const {
    return "the base image " + (checkpoint::kImagePrefix + wanted_sum());
}

std::vector<Offer> ImageFiles::offers(uint64_t min_index) {
    std::vector<Offer> out;
    for (const checkpoint::ImageStore::Entry& one : store_.list()) {
        if (image_number(one.sum) != min_index) continue;
        const std::string manifest = manifest_of(one.sum, one.bytes);
        out.push_back({name_of(one.sum, manifest), manifest.size(), one.bytes});
        break;
    }
    return out;
}

std::string ImageFiles::read(const ReadWords& wanted) {
    if (!open_.file || open_.name != wanted.name) {
        open_ = {};
        for (const checkpoint::ImageStore::Entry& one : store_.list()) {
            std::string manifest = manifest_of(one.sum, one.bytes);
            if (name_of(one.sum, manifest) != wanted.name) continue;
            open_ = {wanted.name, std::move(manifest),
                     std::make_unique<File>(store_.path_of(one.sum), O_RDONLY)};
            break;
        }
        if (!open_.file) throw std::runtime_error("the base image is gone");
    }
    if (wanted.file > 1) throw std::runtime_error("there is no such file");
    std::string bytes;
    if (wanted.file != kManifestFile) {
        bytes = open_.file->read(wanted.offset, wanted.bytes);
    } else if (wanted.offset <= open_.manifest.size()) {
        bytes = open_.manifest.substr(wanted.offset, wanted.bytes);
    }
    if (bytes.size() != wanted.bytes) throw std::runtime_error("the image ends before what was asked for");
    return bytes;
}

CheckpointFiles::Present ImageFiles::present() {
    const std::string sum = wanted_sum();
    if (sum.empty()) return {};
    // A damaged one is read by who runs on it, and has to be removed by somebody.
    return {store_.has(sum) ? image_number(sum) : 0, {}, {}};
}

std::string ImageFiles::arriving_path(const std::string& sum) const {
    return store_.folder() + "/" + kArriving + fetcher_ + "-" + sum;
}

void ImageFiles::remove_arriving(const std::string& but) const {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(store_.folder(), ignored)) {
        const std::string name = entry.path().filename();
        if (name.starts_with(kArriving + fetcher_ + "-") && entry.path() != but)
            fs::remove(entry.path(), ignored);
    }
}

std::vector<ArrivedPart> ImageFiles::parts() const {
    struct stat info {};
    const std::string path = arriving_path(sum_);
    uint64_t have = ::stat(path.c_str(), &info) == 0 ? static_cast<uint64_t>(info.st_size) : 0;
    if (have > bytes_) {
        ::unlink(path.c_str());
        have = 0;
    }
    return {{"the image", bytes_, have}};
}

/// The manifest is short, and comes again.
std::optional<std::vector<ArrivedPart>> ImageFiles::resume(const CheckpointName&) {
    return std::nullopt;
}

bool ImageFiles::is_manifest(const CheckpointName& name, const std::string& manifest) const {
    const uint64_t bytes = bytes_in(manifest);
    return bytes != 0 && manifest == manifest_of(wanted_sum(), bytes) &&
           name == name_of(wanted_sum(), manifest);
}

std::vector<ArrivedPart> ImageFiles::begin(const CheckpointName& name, const std::string& manifest) {
    // Another one may be wanted by now.
    if (!is_manifest(name, manifest)) throw std::runtime_error("it is not wanted any more");
    const std::string sum = wanted_sum();
    const uint64_t bytes = bytes_in(manifest);
    std::error_code error;
    fs::create_directories(store_.folder(), error);
    if (error) throw std::runtime_error("making " + store_.folder() + ": " + error.message());
    remove_arriving(arriving_path(sum));
    sum_ = sum;
    bytes_ = bytes;
    std::vector<ArrivedPart> now = parts();
    check_room(store_.folder(), bytes - now[0].have, reserve_bytes_);
    return now;
}

void ImageFiles::append(size_t, uint64_t offset, std::string_view bytes) {
    const File file(arriving_path(sum_), O_WRONLY | O_CREAT);
    if (file.bytes() != offset || bytes_ - offset < bytes.size())
        throw std::runtime_error(file.path() + " was changed by somebody else");
    if (room_.due(bytes.size())) {
        check_room(store_.folder(), bytes_ - offset, reserve_bytes_);
        room_.found();
    }
    file.write(bytes, offset);
}

bool ImageFiles::check(size_t, const checkpoint::Stop& stop) {
    const std::string path = arriving_path(sum_);
    {
        const File file(path, O_RDWR);
        if (checkpoint::sha256_of_file(file, stop) == sum_) {
            checkpoint::check_squashfs(file);
            return true;
        }
    }
    ::unlink(path.c_str());
    return false;
}

void ImageFiles::publish() {
    store_.adopt(arriving_path(sum_), sum_);
}

}  // namespace crane::proxy
