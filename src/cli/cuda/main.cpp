// The program where it is built with CUDA.
#include "src/cli/program.hpp"

int main(int argc, char** argv) { return tandem::run_program(argc, argv, tandem::cuda_build); }
