#include "comm/communicator.hpp"

#include <algorithm>
#include <cstring>

#include "src/base/text.hpp"

namespace tandem {
namespace {

// A failure as text that travels between ranks: kind, first rank, text, one a line.
std::string encode(const Failure& failure) {
  return cat(static_cast<int>(failure.kind), '\n', failure.rank, '\n', failure.text);
}

Failure decode(const std::string& text) {
  const std::size_t first = text.find('\n');
  const std::size_t second = text.find('\n', first + 1);
  return {static_cast<ErrorKind>(std::stoi(text.substr(0, first))),
          std::stoi(text.substr(first + 1, second - first - 1)), text.substr(second + 1)};
}

}  // namespace

std::uint64_t Communicator::all_reduce_sum(std::uint64_t value) {
  auto sum = static_cast<std::int64_t>(value);
  all_reduce_sum(std::span(&sum, 1));
  return static_cast<std::uint64_t>(sum);
}

void SingleCommunicator::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  if (all.size() != mine.size()) {
    throw Error(ErrorKind::kInternal,
                cat("all_gather of ", mine.size(), " bytes into ", all.size(), " bytes"));
  }
  if (!mine.empty()) std::memmove(all.data(), mine.data(), mine.size());
}

void SingleCommunicator::transfer(std::span<std::byte>, int from, int to) {
  if (from != 0 || to != 0)
    throw Error(ErrorKind::kInternal, cat("transfer from rank ", from, " to rank ", to, " of 1"));
}

void SingleCommunicator::broadcast(std::span<std::byte>, int root) {
  if (root != 0) throw Error(ErrorKind::kInternal, cat("broadcast from rank ", root, " of 1"));
}

Failure failure_of_current_exception(int rank) {
  try {
    throw;
  } catch (const CommunicationError&) {
    throw;
  } catch (const AgreedError& error) {
    return {error.kind(), error.rank(), error.what()};
  } catch (const Error& error) {
    return {error.kind(), rank, error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorKind::kDevice, rank, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorKind::kInternal, rank, error.what()};
  } catch (...) {
    return {ErrorKind::kInternal, rank, "an exception of unknown type"};
  }
}

void agree_on(Communicator& comm, const std::optional<Failure>& mine) {
  if (comm.all_reduce_sum(mine ? std::uint64_t{1} : std::uint64_t{0}) == 0) return;
  const std::vector<std::string> all = comm.all_gather_text(mine ? encode(*mine) : std::string());
  for (const std::string& text : all) {
    if (text.empty()) continue;
    const Failure first = decode(text);
    throw AgreedError(first.kind, first.text, first.rank);
  }
}

void require_equal(Communicator& comm, std::string_view name, std::string_view value, ErrorKind kind) {
  const std::vector<std::string> all = comm.all_gather_text(value);
  const auto differs = [&](const std::string& other) { return other != all.front(); };
  const auto first = std::find_if(all.begin(), all.end(), differs);
  if (first == all.end()) return;

  std::vector<std::string> values;  // in the order of the ranks that have them first
  for (const std::string& other : all) {
    if (std::find(values.begin(), values.end(), other) == values.end()) values.push_back(other);
  }
  std::string text = cat(name, " differs between ranks:");
  for (std::size_t v = 0; v < values.size(); ++v) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      if (all[rank] == values[v]) ranks.push_back(static_cast<int>(rank));
    }
    text +=
        cat(v == 0 ? " " : "; ", ranks.size() == 1 ? "rank " : "ranks ", ranges_text(ranks), ": ", values[v]);
  }
  throw AgreedError(kind, text, static_cast<int>(first - all.begin()));
}

void require_equal(Communicator& comm, std::string_view name, std::uint64_t value, ErrorKind kind) {
  const std::vector<std::uint64_t> all = comm.all_gather_value(value);
  if (std::all_of(all.begin(), all.end(), [&](std::uint64_t other) { return other == all.front(); })) return;
  std::ostringstream hex;
  hex << std::hex << value;
  require_equal(comm, name, hex.str(), kind);
}

std::string ranges_text(std::span<const int> numbers) {
  std::string text;
  for (std::size_t begin = 0; begin < numbers.size();) {
    std::size_t end = begin + 1;
    while (end < numbers.size() && numbers[end] == numbers[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(numbers[begin]);
    if (end - begin > 1) text += cat('-', numbers[end - 1]);
    begin = end;
  }
  return text;
}

}  // namespace tandem
