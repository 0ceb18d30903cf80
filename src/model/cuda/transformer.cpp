// The passes on a CUDA device, in float32 and bfloat16.
#include "src/model/transformer_impl.hpp"

namespace tandem {

template class TransformerOn<CudaContext, float>;
template class TransformerOn<CudaContext, Bf16>;

}  // namespace tandem
