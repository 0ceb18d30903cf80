// Errors carry a kind, which becomes the program's exit code, and one line of text: what, where, what to do.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "src/base/text.hpp"

namespace tandem {

// The value is the exit code.
enum class ErrorKind {
  kInternal = 1,
  kUsage = 2,         // options, configuration keys
  kInput = 3,         // files: data, models, run folders
  kDevice = 4,        // devices and communication
  kDisagreement = 5,  // the stacks disagree
  kStopped = 6,       // stopped by a signal after saving
};

class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& text) : std::runtime_error(printable_line(text)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

// An error that every rank of a run throws alike, first met by `rank`; only that rank prints it.
class AgreedError : public Error {
 public:
  AgreedError(ErrorKind kind, const std::string& text, int rank) : Error(kind, text), rank_(rank) {}
  int rank() const { return rank_; }

 private:
  int rank_;
};

}  // namespace tandem
