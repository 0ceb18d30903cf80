// Takes hold of the first GPU and says so, or in one line why it cannot.
#include <iostream>

#include "kernels/cuda_context.hpp"
#include "src/base/error.hpp"

int main() {
  try {
    const tandem::CudaContext ctx(0);
    ctx.synchronize();
    std::cout << "GPU 0 works" << std::endl;
    return 0;
  } catch (const tandem::Error& error) {
    std::cout << error.what() << std::endl;
    return error.kind() == tandem::ErrorKind::kDevice ? 0 : error.exit_code();
  }
}
