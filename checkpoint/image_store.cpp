#include "checkpoint/image_store.hpp"

#include <linux/fs.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>

namespace fs = std::filesystem;

namespace crane::checkpoint {
namespace {

constexpr char kSuffix[] = ".squashfs", kUnfinished[] = ".adding-";
constexpr std::string_view kSquashfsMagic = "hsqs";

bool is_image_sum(std::string_view text) {
    return text.size() == kImageSumDigits &&
           text.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

struct FreeDigest {
    void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

void copy_bytes(const File& from, const File& to) {
    if (::ioctl(to.fd(), FICLONE, from.fd()) == 0) return;
    const uint64_t bytes = from.bytes();
    for (uint64_t done = 0; done < bytes;) {
        const std::string piece = from.read(done, kSumPieceBytes);
        if (piece.empty()) throw std::runtime_error(from.path() + " became shorter while it was read");
        to.write(piece, done);
        done += piece.size();
    }
}

/// Of an earlier process that did not come to its end.
void remove_unfinished(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
        const std::string name = entry.path().filename();
        if (!name.starts_with(kUnfinished)) continue;
        const pid_t pid = ::atoi(name.c_str() + sizeof(kUnfinished) - 1);
        if (pid <= 0 || (::kill(pid, 0) != 0 && errno == ESRCH)) fs::remove(entry.path(), ignored);
    }
}

}  // namespace

std::optional<std::string> image_sum_in(std::string_view reference) {
    if (!reference.starts_with(kImagePrefix)) return std::nullopt;
    reference.remove_prefix(sizeof(kImagePrefix) - 1);
    if (!is_image_sum(reference)) return std::nullopt;
    return std::string(reference);
}

std::string sha256_of_file(const File& file, const Stop& stop, const std::function<void(uint64_t)>& read) {
    const std::unique_ptr<EVP_MD_CTX, FreeDigest> context(EVP_MD_CTX_new());
    if (!context || EVP_DigestInit_ex(context.get(), EVP_sha256(), nullptr) != 1)
        throw std::runtime_error("OpenSSL has no SHA-256");
    for (uint64_t done = 0;;) {
        if (stop()) throw Stopped();
        const std::string piece = file.read(done, kSumPieceBytes);
        if (piece.empty()) break;
        EVP_DigestUpdate(context.get(), piece.data(), piece.size());
        done += piece.size();
        if (read) read(done);
    }
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned bytes = 0;
    EVP_DigestFinal_ex(context.get(), sum, &bytes);
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < bytes; ++i) text += {kDigits[sum[i] >> 4], kDigits[sum[i] & 15]};
    return text;
}

void check_squashfs(const File& file) {
    if (file.read(0, kSquashfsMagic.size()) != kSquashfsMagic)
        throw std::runtime_error(file.path() +
                                 " is no base image (a squashfs): make one with crane image make");
}

bool ImageStore::has(const std::string& sum) const {
    struct stat info {};
    return ::stat(path_of(sum).c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

std::string ImageStore::add(const std::string& path, const std::function<void(uint64_t)>& read) {
    const File from(path, O_RDONLY);
    check_squashfs(from);
    std::error_code error;
    fs::create_directories(folder_, error);
    if (error) throw std::runtime_error("making " + folder_ + ": " + error.message());
    remove_unfinished(folder_);
    const std::string unfinished = folder_ + "/" + kUnfinished + std::to_string(::getpid());
    try {
        // The sum is of the copy: the file may be written to meanwhile.
        const File to(unfinished, O_RDWR | O_CREAT | O_TRUNC);
        copy_bytes(from, to);
        std::string sum = sha256_of_file(to, never, read);
        adopt(unfinished, sum);
        return sum;
    } catch (...) {
        ::unlink(unfinished.c_str());
        throw;
    }
}

void ImageStore::adopt(const std::string& path, const std::string& sum) {
    {
        const File file(path, O_RDONLY);
        if (::fchmod(file.fd(), 0444) != 0) throw file_error("make read-only", path, errno);
        file.sync();
    }
    if (::rename(path.c_str(), path_of(sum).c_str()) != 0) throw file_error("rename", path, errno);
    sync_folder(folder_);
}

std::vector<ImageStore::Entry> ImageStore::list() const {
    std::vector<Entry> found;
    std::error_code error;
    for (fs::directory_iterator entry(folder_, error), end; !error && entry != end; entry.increment(error)) {
        const fs::path& path = entry->path();
        struct stat info {};
        if (path.extension() != kSuffix || !is_image_sum(path.stem().string()) ||
            ::stat(path.c_str(), &info) != 0)
            continue;
        found.push_back({path.stem().string(), static_cast<uint64_t>(info.st_size), info.st_ctim.tv_sec});
    }
    if (error && error != std::errc::no_such_file_or_directory)
        throw std::runtime_error(folder_ + ": " + error.message());
    std::ranges::sort(found, {}, &Entry::sum);
    return found;
}

bool ImageStore::remove(const std::string& sum) {
    if (::unlink(path_of(sum).c_str()) == 0) return true;
    if (errno == ENOENT) return false;
    throw file_error("remove", path_of(sum), errno);
}

void CheckedImages::check(const std::string& path, const std::string& sum) {
    struct stat info {};
    if (::stat(path.c_str(), &info) != 0) {
        right_.erase(path);
        if (errno != ENOENT) throw file_error("look at", path, errno);
        throw std::runtime_error("the base image sha256:" + sum +
                                 " is not on this host: crane image add FILE --store " +
                                 fs::path(path).parent_path().string());
    }
    const Seen now{info.st_dev, info.st_ino, static_cast<uint64_t>(info.st_size),
                   int64_t{info.st_ctim.tv_sec} * 1'000'000'000 + info.st_ctim.tv_nsec};
    const auto known = right_.find(path);
    if (known != right_.end() && known->second == now) return;
    const File file(path, O_RDONLY);
    if (sha256_of_file(file, never) != sum) {
        right_.erase(path);
        throw std::runtime_error("the base image " + path +
                                 " is damaged (its bytes have another sum): remove it, and add " +
                                 "it again (crane image add)");
    }
    right_[path] = now;
}

}  // namespace crane::checkpoint
