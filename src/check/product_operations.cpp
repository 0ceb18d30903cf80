// The products of layer 0 and of the head, the adapters' in them. Sizes are |a| |b| of the products' operands
// (Higham, section 3.5); where a product's operand is itself one, both sums' terms are counted.
#include <optional>

#include "kernels/product.hpp"
#include "src/check/operation_bench.hpp"
#include "src/model/adapted_product.hpp"
#include "src/model/modules.hpp"

namespace tandem::operations {

namespace {

constexpr const char* kGroupNames[kGroups] = {"qkv", "o", "gate_up", "down"};

mirror::Matrix absolute(ConstMatrix m) { return wide(m).cwiseAbs(); }

// One fused weight with the adapters of its modules.
class GroupCheck {
 public:
  GroupCheck(Bench& bench, int group)
      : bench_(bench),
        name_(std::string("product.") + kGroupNames[group]),
        shape_(bench.config()),
        group_(group),
        w_(bench.weights().layer(0).fused[static_cast<std::size_t>(group)]),
        lora_(bench.lora().group(0, group)),
        flat_(bench.draw("adapter", 1, bench.lora().size(), 0.1)),
        grad_(bench.blank(1, bench.lora().size())),
        x_(bench.draw(name_ + ".x", kTokens, w_.cols)),
        dy_(bench.draw(name_ + ".dy", kTokens, w_.rows)),
        u_(bench.blank(kTokens, rank() * members())),
        du_(bench.blank(kTokens, rank() * members())) {
    // The residual stream is added where a block of the layer ends.
    if (group == kOut || group == kDown) base_ = bench.draw(name_ + ".base", kTokens, w_.rows);
  }

  void run() {
    record();
    forward();
    input_gradient();
    for (std::size_t m = 0; m < lora_.members.size(); ++m) b_gradient(m);
    if (members() > 0) a_gradient();
  }

 private:
  std::int64_t rank() const { return bench_.lora().rank(); }
  std::int64_t members() const { return static_cast<std::int64_t>(lora_.members.size()); }
  double scale() const { return bench_.spec().lora_scale(); }
  std::span<const float> flat() const { return {flat_.data, static_cast<std::size_t>(flat_.cols)}; }
  std::span<float> grad() const { return {grad_.data, static_cast<std::size_t>(grad_.cols)}; }
  ConstMatrix a(std::size_t m) const {
    const auto at = static_cast<std::int64_t>(m) * rank();
    return bench_.lora().a(flat(), lora_).row_range(at, at + rank());
  }
  ConstMatrix b(std::size_t m) const { return bench_.lora().b(flat(), lora_.members[m]); }
  ConstMatrix dy(std::size_t m) const {
    return dy_.col_range(lora_.members[m].row_begin, lora_.members[m].row_end);
  }
  std::optional<std::size_t> member_of(const Module& module) const {
    for (std::size_t m = 0; m < lora_.members.size(); ++m)
      if (lora_.members[m].row_begin == module.row_begin) return m;
    return std::nullopt;
  }

  // The mirror's layer: each module's product with its own adapter, side by side.
  void record() {
    const mirror::Var x = tape_.variable(wide(ConstMatrix(x_)));
    std::vector<mirror::Var> parts;
    adapters_.resize(lora_.members.size());
    for (const Module& module : shape_.modules) {
      if (module.group != group_) continue;
      weights_.emplace_back(w_.row_range(module.row_begin, module.row_end));
      mirror::Var y = frozen_product(x, weights_.back());
      if (const auto m = member_of(module)) {
        const mirror::Var va = tape_.variable(wide(a(*m))), vb = tape_.variable(wide(b(*m)));
        adapters_[*m] = {va, vb};
        y = add(y, mirror::scale(product_transposed(product_transposed(x, va), vb), scale()));
      }
      parts.push_back(y);
    }
    mirror::Var y = mirror::join_columns(parts);
    if (base_) y = add(y, tape_.constant(wide(ConstMatrix(*base_))));
    x_var_ = x;
    y_value_ = y.value();
    tape_.backward(y, wide(ConstMatrix(dy_)));
  }

  void forward() {
    if (members() > 0)
      product(bench_.ctx(), u_, {}, {{x_, Op::kPlain, bench_.lora().a(flat(), lora_), Op::kTransposed}});
    const Matrix y = bench_.blank(kTokens, w_.rows);
    adapted_product(bench_.ctx(), y, base_ ? ConstMatrix(*base_) : ConstMatrix(), x_, w_, bench_.lora(),
                    lora_, members() > 0 ? flat() : std::span<const float>(), u_);
    mirror::Matrix size = mirror::product_bound(wide(ConstMatrix(x_)), wide(w_));
    for (std::size_t m = 0; m < lora_.members.size(); ++m) {
      const LoraGroup::Member& member = lora_.members[m];
      const mirror::Matrix inner = mirror::product(absolute(x_), absolute(a(m)));
      size.middleCols(member.row_begin, member.row_end - member.row_begin) +=
          scale() * mirror::product(inner, absolute(b(m)));
    }
    if (base_) size += absolute(*base_);
    // The scale's rounding and its product, and two additions.
    bench_.compare(name_, y, y_value_, size, sum_of(w_.cols + (members() > 0 ? rank() : 0), 4));
  }

  // du = s dy B, then dx = dy W + du A.
  void input_gradient() {
    std::vector<ProductTerm> terms;
    std::int64_t widest = 0;
    mirror::Matrix size = absolute(dy_) * absolute(w_);
    for (std::size_t m = 0; m < lora_.members.size(); ++m) {
      const auto at = static_cast<std::int64_t>(m) * rank();
      terms.push_back(
          {dy(m), Op::kPlain, b(m), Op::kPlain, bench_.lora().scale_of(lora_.members[m]), at, at + rank()});
      size += scale() * (absolute(dy(m)) * absolute(b(m)) * absolute(a(m)));
      widest = std::max(widest, b(m).rows);
    }
    const Matrix dx = bench_.blank(kTokens, w_.cols);
    if (members() > 0) {
      product(bench_.ctx(), du_, {}, terms);
      product(
          bench_.ctx(), dx, {},
          {{dy_, Op::kPlain, w_, Op::kPlain}, {du_, Op::kPlain, bench_.lora().a(flat(), lora_), Op::kPlain}});
    } else {
      product(bench_.ctx(), dx, {}, {{dy_, Op::kPlain, w_, Op::kPlain}});
    }
    bench_.compare(name_ + ".dx", dx, tape_.gradient(*x_var_), size,
                   sum_of(w_.rows + widest + rank() * members(), 3));
  }

  // dA = du^T x, all members' at once.
  void a_gradient() {
    const Matrix da = bench_.lora().a(grad(), lora_);
    product(bench_.ctx(), da, {}, {{du_, Op::kTransposed, x_, Op::kPlain}});
    mirror::Matrix reference(da.rows, da.cols), size(da.rows, da.cols);
    std::int64_t widest = 0;
    for (std::size_t m = 0; m < lora_.members.size(); ++m) {
      const auto at = static_cast<std::int64_t>(m) * rank();
      reference.middleRows(at, rank()) = tape_.gradient(adapters_[m]->first);
      const mirror::Matrix inner = absolute(dy(m)) * absolute(b(m));
      size.middleRows(at, rank()) = scale() * (inner.transpose() * absolute(x_));
      widest = std::max(widest, b(m).rows);
    }
    bench_.compare(name_ + ".da", da, reference, size, sum_of(kTokens + widest, 2));
  }

  // dB = s dy^T u
  void b_gradient(std::size_t m) {
    const LoraGroup::Member& member = lora_.members[m];
    const auto at = static_cast<std::int64_t>(m) * rank();
    const Matrix db = bench_.lora().b(grad(), member);
    product(bench_.ctx(), db, {},
            {{dy(m), Op::kTransposed, u_.col_range(at, at + rank()), Op::kPlain,
              bench_.lora().scale_of(member)}});
    const mirror::Matrix inner = mirror::product(absolute(x_), absolute(a(m)));
    const mirror::Matrix size = scale() * (absolute(dy(m)).transpose() * inner);
    bench_.compare("product." + member.module.substr(member.module.rfind('.') + 1) + ".db", db,
                   tape_.gradient(adapters_[m]->second), size, sum_of(kTokens + x_.cols, 2));
  }

  Bench& bench_;
  std::string name_;
  LayerShape shape_;
  int group_;
  ConstMatrix w_;
  const LoraGroup& lora_;
  Matrix flat_, grad_, x_, dy_, u_, du_;
  std::optional<Matrix> base_;
  mirror::Tape tape_;
  std::deque<FloatWeight> weights_;  // the tape refers to them
  std::vector<std::optional<std::pair<mirror::Var, mirror::Var>>> adapters_;
  std::optional<mirror::Var> x_var_;
  mirror::Matrix y_value_;
};

void check_head(Bench& bench) {
  constexpr std::int64_t kScored = 8, kHeadRows = 4096;
  const ConstMatrix all = bench.weights().head();
  const ConstMatrix head = all.row_range(0, std::min(all.rows, kHeadRows));
  const Matrix x = bench.draw("head.x", kScored, head.cols), g = bench.draw("head.g", kScored, head.rows);
  const Matrix logits = bench.blank(kScored, head.rows), dx = bench.blank(kScored, head.cols);
  product(bench.ctx(), logits, {}, {{x, Op::kPlain, head, Op::kTransposed}});
  product(bench.ctx(), dx, {}, {{g, Op::kPlain, head, Op::kPlain}});
  const mirror::Matrix wx = wide(ConstMatrix(x)), wg = wide(ConstMatrix(g)), w = wide(head);
  bench.compare("product.head", logits, mirror::product(wx, w), mirror::product_bound(wx, w),
                sum_of(head.cols));
  bench.compare("product.head.dx", dx, wg * w, wg.cwiseAbs() * w.cwiseAbs(), sum_of(head.rows));
}

}  // namespace

void check_products(Bench& bench) {
  for (int group = 0; group < kGroups; ++group) GroupCheck(bench, group).run();
  check_head(bench);
}

}  // namespace tandem::operations
