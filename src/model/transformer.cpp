#include "src/model/transformer_impl.hpp"

namespace tandem {

template class TransformerOn<CpuContext, float>;

}  // namespace tandem
