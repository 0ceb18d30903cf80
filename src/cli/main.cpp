#include "src/cli/program.hpp"

int main(int argc, char** argv) { return tandem::run_program(argc, argv, nullptr); }
