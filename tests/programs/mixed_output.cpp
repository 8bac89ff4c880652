// A tool that copies its input to its output by both of C's and C++'s streams, in order.
#include <cstdio>
#include <iostream>
#include <string>

int main() {
    std::string line;
    std::printf("C\n");
    std::cout << "C++\n";
    for (int n = 0; std::getline(std::cin, line); ++n) {
        if (n % 2) {
            std::cout << line << '\n';
        } else {
            std::printf("%s\n", line.c_str());
        }
    }
    std::printf("end\n");
    std::cout << "END" << std::endl;
    return 0;
}
