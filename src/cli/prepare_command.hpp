// `tandem prepare --from SOURCE:FILE ... --out DIR`: public clinical sources to rows for training, with an
// account.
#pragma once

#include <iosfwd>

#include "io/clinical/prepare.hpp"
#include "src/cli/options.hpp"

namespace tandem {

// Throws kUsage, one line, for a value that is none of the option's.
PrepareOptions prepare_options(const Arguments& arguments);

// Writes the account to `out`, as a table or as JSON; what else is to be known to `notes`. Returns 0; throws
// what prepare_clinical throws.
int prepare_command(const PrepareOptions& options, bool json, std::ostream& out, std::ostream& notes);

}  // namespace tandem
