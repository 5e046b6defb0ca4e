// tests/programs/streams - streams FILE [stdin]: C++ streams, as libstdc++ has them; with `stdin`
// also the standard one, which libc opens the file itself for.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

static unsigned long digest(const std::string &s)
{
    unsigned long h = 5381;

    for (unsigned char c : s)
        h = h * 33 + c;
    return h;
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    std::ifstream lines(argv[1]);
    std::string line;
    unsigned long h = 0, count = 0;
    while (std::getline(lines, line)) {
        h = h * 31 + digest(line);
        count++;
    }
    std::cout << count << " lines " << h << "\n";

    std::ifstream whole(argv[1], std::ios::binary);
    std::string all((std::istreambuf_iterator<char>(whole)), std::istreambuf_iterator<char>());
    std::cout << all.size() << " bytes " << digest(all) << "\n";

    std::ifstream seek(argv[1], std::ios::binary | std::ios::ate);
    std::cout << "end " << seek.tellg() << "\n";
    std::vector<char> part(1000);
    seek.seekg(5000);
    seek.read(part.data(), 1000);
    std::cout << seek.gcount() << " " << digest(std::string(part.data(), 1000)) << " at "
              << seek.tellg() << "\n";
    seek.seekg(-10, std::ios::end);
    seek.read(part.data(), 1000);
    std::cout << seek.gcount() << " eof " << seek.eof() << "\n";

    std::stringstream copy;
    copy << std::ifstream(argv[1]).rdbuf();
    std::cout << "rdbuf " << digest(copy.str()) << "\n";
    std::cout << "none " << std::ifstream("/nowhere/at/all").is_open() << "\n";

    // Standard input, when it is a file of the data set.
    if (argc > 2 && std::freopen(argv[1], "r", stdin)) {
        int n = 0;
        std::cin >> n;
        std::cout << "cin " << n << "\n";
    }
    return 0;
}
