// A condition that only a fault of the mirror itself can break.
#pragma once

#include "src/base/error.hpp"

namespace tandem::mirror {

template <class... Parts>
void check(bool holds, const Parts&... parts) {
  if (!holds) throw Error(ErrorKind::kInternal, cat("mirror: ", parts...));
}

}  // namespace tandem::mirror
