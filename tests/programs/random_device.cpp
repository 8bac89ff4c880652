// std::random_device, which asks the processor and not the kernel.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <string>

int main(int argc, char** words) {
    const int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(std::atoi(words[argc - 1])));
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0 ||
        listen(listener, 64) != 0)
        return 1;
    std::random_device usual;
    for (;;) {
        const int client = accept(listener, nullptr, nullptr);
        if (client < 0) return 1;
        char line[64];
        std::string text = "asked\n";
        if (read(client, line, sizeof(line)) <= 0) text = "";
        for (const char* token : {"default", "rdrand", "/dev/urandom"}) {
            try {
                std::random_device named(token);
                text += std::string("~") + token + " " + std::to_string(named()) + "\n";
            } catch (const std::exception&) {
                text += std::string("~") + token + " is not there\n";
            }
        }
        text += "~usual " + std::to_string(usual()) + "\n";
        text += std::uniform_int_distribution<int>(1, 6)(usual) <= 6 ? "a die\n" : "no die\n";
        if (write(client, text.data(), text.size()) < 0) return 1;
        close(client);
    }
}
