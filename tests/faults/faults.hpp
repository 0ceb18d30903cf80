// The faults planted in native, and what audits make of them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tandem::faults_test {

struct Fault {
  std::string name, what, level, observation;
  std::string verdict, note;  // of the first audit that fails; a part of its note
  std::int64_t first = 1;     // its update
  int ranks = 1;
  std::string environment = "";
};

// Two ranks with a micro-batch each where a fault is one rank's. B = 0 at update 1: the adapter's own faults
// show in B's gradient alone then.
inline const std::vector<Fault>& faults() {
  static const std::vector<Fault> table = {
      {"flipped_bit", "a bit of one rank's gradient flipped before the reduction", "4, arithmetic",
       "d of one tensor", "CALIBRATED", "v_proj.lora_B.weight: gradient's relative error", 1, 2,
       "TANDEM_FAULT_RANK=1"},
      {"wrong_alpha", "alpha off by 0.1 % in one module", "4, arithmetic", "d and s = 1.001 of one tensor",
       "CALIBRATED", "layers.1.mlp.down_proj.lora_B.weight: gradient is the mirror's times 1.001"},
      {"dropped_rank", "one rank's contribution dropped", "4, arithmetic", "loss, norm and d of all tensors",
       "CALIBRATED", "loss ", 1, 2, "TANDEM_FAULT_RANK=1"},
      {"unread_theta", "rope_theta not read, its default taken", "2, loading", "configuration as read",
       "EXACT", "configuration was read otherwise: rope_theta 10000.0, by the mirror 1000000.0"},
      {"wrong_norm_eps", "RMSNorm's eps 1e-5 for 1e-6", "4, arithmetic", "d of all tensors", "CALIBRATED",
       "gradient's relative error"},
      {"wrong_adam_eps", "AdamW's eps 1e-6 for 1e-8", "4, optimiser", "AdamW's step in isolation", "BOUND",
       "AdamW's step is off by"},
      {"transposed_tensor", "a square tensor transposed at loading", "2, loading",
       "digests of the base weights in memory", "EXACT",
       "base tensor model.layers.0.self_attn.o_proj.weight in memory is not the model's", 0},
      {"ignored_stride", "a strided operand read as contiguous in backward", "4, arithmetic",
       "d and s of the B that share an output", "CALIBRATED", "gradient's relative error"},
      {"half_shared_projection", "a shared projection (k, v of two query heads) gets one use's gradient",
       "4, arithmetic", "d and s from k and v down; loss right", "CALIBRATED", "gradient's relative error"},
      {"generic_template", "the generic chat template for the model's own", "3, rendering",
       "samples' digests", "EXACT", "has other token ids or target marks"},
      {"shifted_labels", "labels shifted twice", "1, untrained loss", "loss, d", "CALIBRATED", "loss "},
      {"lost_moments", "moments lost before update 2", "4, optimiser", "what the update starts from", "EXACT",
       "adapter or moments are not what the update before left; all moments are zero after 1", 2, 1,
       "TANDEM_FAULT_UPDATE=2"},
      {"leaking_packing", "attention leaking between packed samples", "1, untrained loss", "loss, d",
       "CALIBRATED", "loss "},
  };
  return table;
}

// Not an update's: an evaluation's.
inline const Fault kEvaluation = {"eval_without_adapter",
                                  "evaluation without the adapter",
                                  "4, trajectory",
                                  "evaluation equal to the bit to that without adapter, B not 0; free run",
                                  "EXACT",
                                  "",
                                  1};

}  // namespace tandem::faults_test
