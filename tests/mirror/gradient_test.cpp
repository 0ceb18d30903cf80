// Every adapter gradient of whole models against finite differences of the loss.
#include <gtest/gtest.h>

#include "src/mirror/transformer.hpp"
#include "tests/mirror/finite_difference.hpp"
#include "tests/mirror/tiny.hpp"

namespace tandem::mirror {
namespace {

// Far above both errors at kStep, since the fifth derivatives of models are larger than 1 (measured: 2e-10 at
// most).
constexpr double kTolerance = 1e-9;

struct Case {
  std::string kind, dropout;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.kind << ", dropout " << c.dropout; }

class MirrorGradient : public testing::TestWithParam<Case> {};

TEST_P(MirrorGradient, OfEveryAdapterTensorMatchesFiniteDifferences) {
  const support::TempFolder folder;
  Inputs inputs{"", make_tiny(folder, GetParam().kind), make_rows(folder, "train", {9}, {6}), {}, {}, 1};
  inputs.spec_text = tiny_spec(inputs, {{"lora.dropout", GetParam().dropout}});
  const Spec spec = read_spec(inputs.spec_text);
  const Config config = read_config(inputs.model / "config.json");
  const Weights weights(inputs.model, config);
  const Lora lora(spec, weights);
  const Transformer transformer(config, weights, lora);
  Tensors adapter = random_adapter(Mirror(inputs));

  const std::vector<std::int32_t> ids = {3, 17, 39, 0, 5, 5, 21, 30, 8};
  const std::vector<std::int64_t> scored = {1, 3, 4, 8};
  Transformer::Pass pass{&adapter, std::nullopt, std::nullopt};
  if (spec.lora_dropout > 0) pass.dropout = {spec.lora_dropout, spec.seed_dropout, 4, 11};
  Tensors gradient = lora.zeros();
  std::vector<double> term_squares(gradient.size());
  const Column nll = transformer.nll_with_gradient(ids, scored, pass, gradient, term_squares);
  EXPECT_EQ(nll, transformer.nll(ids, scored, pass));
  for (std::size_t p = 0; p < adapter.size(); ++p) {
    const auto expected =
        finite_differences(adapter[p], [&] { return transformer.nll(ids, scored, pass).sum(); });
    EXPECT_LE(relative_distance(gradient[p], expected), kTolerance) << lora.tensors()[p].name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MirrorGradient,
                         testing::Values(Case{"qwen3", "0.0"}, Case{"llama", "0.0"}, Case{"llama3", "0.0"},
                                         Case{"qwen2", "0.0"}, Case{"qwen3", "0.3"}),
                         [](const auto& test) {
                           return test.param.kind + (test.param.dropout == "0.0" ? "" : "WithDropout");
                         });

}  // namespace
}  // namespace tandem::mirror
