// Low-rank adapters (Hu et al. 2021, section 4.1): y = W x + s B (A x). Which there are, their names and
// where their values start.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "src/mirror/mirror.hpp"
#include "src/mirror/spec_text.hpp"
#include "src/mirror/weights.hpp"

namespace tandem::mirror {

class Lora {
 public:
  Lora(const Spec& spec, const Weights& weights);

  double scale() const { return scale_; }  // alpha / r, or alpha / sqrt(r)
  double dropout() const { return dropout_; }
  const std::vector<std::string>& modules() const { return modules_; }    // in byte order
  const std::vector<AdapterTensor>& tensors() const { return tensors_; }  // A, B of each module
  // Index of a module's A in digest order; B follows. Nothing where the module has no adapter.
  std::optional<std::size_t> find(const std::string& module) const;

  Tensors zeros() const;
  Tensors drawn(std::uint64_t seed) const;  // A drawn, B zero
  // A PEFT adapter's values. kInput unless its rank, scale and modules are the run's.
  Tensors imported(const std::filesystem::path& folder, const Spec& spec) const;
  void check_shapes(const Tensors& tensors) const;

 private:
  double scale_, dropout_;
  std::vector<std::string> modules_;
  std::vector<AdapterTensor> tensors_;
};

}  // namespace tandem::mirror
