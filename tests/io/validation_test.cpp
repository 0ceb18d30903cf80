// What io/FORMAT.md asks is asked of files: one change of a valid file each, and the line that tells of it.
#include <gtest/gtest.h>

#include <sstream>

#include "io/format/table.hpp"
#include "io/hdf5.hpp"
#include "io/trajectory_validation.hpp"
#include "tests/io/whole_trajectory.hpp"
#include "tests/support/shell.hpp"

namespace tandem {
namespace {

namespace fs = std::filesystem;
using support::TempFolder;

format::RunPlan plan(const std::string& spec, const std::string&) {
  if (spec.empty()) return {};
  return {.updates = 4, .eval_every = 3, .batch_global = 2, .observe_every = 2, .snapshot_every = 3};
}

std::string lines_of(const Validity& validity) {
  std::string text;
  for (const auto& problem : validity.problems) text += problem.line() + "\n";
  return text;
}

TEST(Validation, TakesWhatTheWriterWritesAndTheWriterWritesAllOfTheTable) {
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  const Validity validity = validate_trajectory(folder / "native.h5", plan);
  EXPECT_EQ(lines_of(validity), "");
  EXPECT_EQ(validity.absent, std::vector<std::string>{"ops"});
  EXPECT_TRUE(validity.ignored.empty());
  const hdf5::Id file = hdf5::open_for_reading(folder / "native.h5");
  for (const format::Dataset& dataset : format::datasets())
    if (std::string_view(dataset.group) != "ops") {
      EXPECT_GT(H5Lexists(file.get(), dataset.path().c_str(), H5P_DEFAULT), 0) << dataset.path();
    }
  EXPECT_EQ(lines_of(validate_trajectory(folder / "native.snapshots/3.h5", plan)), "");
}

struct Change {
  const char* python;  // f: the file, opened for writing
  const char* line;    // part of one of the lines; "": the file is still valid
};

const Change kChanges[] = {
    // The root.
    {"f.attrs['format'] = 'other'", "attribute format: is \"other\", expected \"tandem-trajectory\""},
    {"del f.attrs['format']", "attribute format: is missing"},
    {"f.attrs['format_version'] = 2", "attribute format_version: is 2, expected 1"},
    {"f.attrs['format_version'] = 'x'", "attribute format_version: is not one integer"},
    {"del f.attrs['stack']", "attribute stack: is missing"},
    {"f.attrs['complete'] = 2", "attribute complete: is 2, expected 0 or 1"},
    {"f.attrs['written_at'] = 'now'", "attribute written_at: is \"now\", expected a time"},
    {"f.attrs['stack'] = np.bytes_('native')", ""},
    // Groups, datasets, types, shapes, attributes.
    {"del f['update/loss']", "/update/loss: is missing, expected [U] float64"},
    {"del f['update/seconds']; del f['update/checksum']", ""},
    {"del f['audit']; del f['load/memory']; del f['render']; del f['probe']", ""},
    {"del f['render/ids']", "/render/ids: is missing, expected to be there, as /render/begin is"},
    {"del f['memory']; f['memory'] = 1", "/memory: is a dataset, expected a group"},
    {"del f['snapshot']; f['snapshot'] = 1", "/snapshot: is a dataset, expected a group"},
    {"del f['update/lr']; f.create_group('update/lr')", "/update/lr: is a group, expected [U] float64"},
    {"f['other/thing'] = 1; f['update/extra'] = 2", ""},
    {"f['other'] = h5py.SoftLink('/other')", ""},
    {"del f['eval']; f['eval'] = h5py.SoftLink('/update')",
     "/eval: is a link, expected an object of its own"},
    {"del f['update/lr']; f['update/lr'] = h5py.ExternalLink('/etc/passwd', '/')", "/update/lr: is a link"},
    {"put('update/loss', f['update/loss'][()].astype('>f8'))",
     "/update/loss: is float64 big-endian, expected float64 little-endian"},
    {"put('update/loss', f['update/loss'][()].astype('<f4'))", "/update/loss: is float32, expected float64"},
    {"put('update/step', [1.0, 2.0, 3.0, 4.0])", "/update/step: is float64, expected int64 little-endian"},
    {"put('update/step', np.array([1, 2, 3, 4], '<i4'))", "/update/step: is int32, expected int64"},
    {"put('update/checksum', np.array([1, 2, 3, 4], '<i8'))", "/update/checksum: is int64, expected uint64"},
    {"put('audit/verdict', np.array([0, 2], [('a', 'i1')]))", "/audit/verdict: is compound, expected int8"},
    {"put('load/name', [1, 2])", "/load/name: is int64, expected text"},
    {"put('load/name', np.array([b'w', b'x'], 'S1'))", ""},
    {"put('eval/adapter_digest', ['0' * 64] * 3)",
     "/eval/adapter_digest: is text, expected text of 64 bytes"},
    {"put('update/lr', [1e-4] * 3)",
     "/update/lr: has the shape [3], expected [U] float64 with U = 4, as /update/step has"},
    {"put('update/lr', [[1e-4]] * 4)", "/update/lr: has the shape [4, 1], expected [U] float64"},
    {"put('audit/bound', np.ones((2, 3)))", "with P = 2, as /adapter/names has"},
    {"put('probe/topk_id', np.ones((3, 3, 7), 'i8'))",
     "/probe/topk_id: has the shape [3, 3, 7], expected [E, K, 8] int64 with 8"},
    {"put('render/begin', np.zeros(7, 'i8'))",
     "/render/begin: has the shape [7], expected [S+1] int64 with S+1 = 8"},
    {"put('spec/text', ['a', 'b'])", "/spec/text: has the shape [2], expected one value"},
    {"put('execution/text', [f['execution/text'][()]])", ""},
    {"del f['update/lr'].attrs['unit']", "/update/lr: has no attribute unit"},
    {"f['update/lr'].attrs['description'] = 1", "/update/lr, attribute description: is not one text"},
    {"del f['update/lr'].attrs['DIMENSION_LABELS']", "/update/lr: lacks dimension labels"},
    {"f['update/sample_ids'].dims[1].label = ''", "/update/sample_ids: lacks dimension labels"},
    {"f['audit/verdict'].attrs['names'] = 'PASS'",
     "/audit/verdict: has the attribute names = PASS, expected PASS,"},
    {"del f['audit/scope'].attrs['names']",
     "/audit/scope: has no attribute names, expected batch,microbatch"},
    // Texts and digests.
    {"put('spec/digest', '0' * 64)", "that of /spec/text"},
    {"text('spec', 'b = 1\\na = 2\\n')",
     "/spec/text: line 1 is \"a = 2\" after \"b = 1\", expected sorted lines"},
    {"text('execution', 'a = 1')", "/execution/text: its last line does not end"},
    {"text('execution', 'nonsense\\n')", "/execution/text: line 0 is \"nonsense\""},
    {"put('audit/note', np.array([b'\\xff', b''], 'S1'))",
     "/audit/note, row 0: is \"\xEF\xBF\xBD\", expected UTF-8"},
    {"f['render/digest'][1] = b'A' * 64", "/render/digest, row 1: is \"AAAA"},
    {"del f['provenance'].attrs['arithmetic']", "/provenance: has no attribute arithmetic"},
    // Inputs.
    {"put('adapter/names', ['m.lora_B.weight', 'm.lora_A.weight'])",
     "/adapter/names, row 1: is \"m.lora_A.weight\", expected names in ascending"},
    {"put('adapter/names', ['m.lora_A.weight', 'n.lora_B.weight'])",
     "expected the same module's .lora_B.weight"},
    {"f['adapter/shapes'][1] = [4, 3]",
     "/adapter/shapes, row 0: is 2, expected the rank of the module's B, 3"},
    {"f['adapter/shapes'][0] = [0, 3]", "/adapter/shapes, row 0: is 0, expected a size above 0"},
    {"put('load/name', ['w', 'w'])", "/load/name, row 1: is \"w\", expected a name of its own"},
    {"f['load/shape'][0] = [8, -1, 4, -1]", "/load/shape, row 0: is 4, expected sizes, then -1"},
    {"f['load/rms'][1] = -1.0", "/load/rms, row 1: is -1, expected a finite number of at least 0"},
    {"f['load/memory/tensor'][2] = 2",
     "/load/memory/tensor, row 2: is 2, expected a row of /load/name, below 2"},
    {"f['load/memory/step'][0] = 5", "/load/memory/step, row 1: is 0, expected at least 5"},
    {"f['render'].attrs['n_train'] = 8",
     "/render: has no attribute n_train that fits, expected an integer from 0 to 7"},
    {"del f['render'].attrs['n_train']", "/render: has no attribute n_train"},
    {"put('render/template_digest', 'x')", "/render/template_digest: is \"x\""},
    {"f['render/n_targets'][0] = 3", "/render/n_targets, row 0: is 3, expected from 0 to 2"},
    {"f['render/last_target_id'][4] = 3", "/render/last_target_id, row 4: is 3, expected -1"},
    {"f['render/ids'][4] = 99", "/render/ids, row 1: sample 1 has the digest"},
    {"f['render/targets'][4] = 2", "/render/targets: holds other marks, expected 0 and 1"},
    {"f['render/begin'][1] = 4",
     "/render/begin, row 0: gives [0, 4), expected 3 ids, as /render/n_ids has (and 1 more)"},
    {"f['render/begin'][0] = -1", "/render/begin: goes from -1 to 21, expected from 0 to 21"},
    // Slow phases.
    {"f['slow/step'][1] = 1", "/slow/step, row 1: is 1, expected at least 2"},
    {"f['slow/rank'][0] = -2", "/slow/rank, row 0: is -2, expected a rank, or -1"},
    {"f['slow/factor'][1] = 1.5", "/slow/factor, row 1: is 1.5, expected a finite number above 2"},
    {"del f['slow']", ""},
    // Updates.
    {"f['update/step'][2] = 5", "/update/step, row 2: is 5, expected 3 (steps count from 1"},
    {"f['update/step'][:] = [0, 1, 2, 3]",
     "/update/step, row 0: is 0, expected 1 (steps count from 1 and rise by 1) (and 3 more)"},
    {"f['update/optimizer_step'][2] = 3",
     "/update/optimizer_step, row 2: is 3, expected 2, as nothing was scored"},
    {"f['update/n_targets'][1] = -2", "/update/n_targets, row 1: is -2, expected a number of at least 0"},
    {"f['update/n_targets'][1] = 3",
     "/update/n_targets, row 1: is 3, expected 2, the sum of /render/n_targets"},
    {"f['update/loss'][2] = 1.0", "/update/loss, row 2: is 1, expected NaN, as nothing was scored"},
    {"f['update/loss'][0] = np.nan", "/update/loss, row 0: is NaN, expected a finite number of at least 0"},
    {"f['update/loss'][0] = np.inf", "/update/loss, row 0: is inf"},
    {"f['update/grad_norm'][0] = -1", "/update/grad_norm, row 0: is -1"},
    {"f['update/clip'][1] = 1.5", "/update/clip, row 1: is 1.5, expected a factor above 0 and at most 1"},
    {"f['update/lr'][3] = np.nan", "/update/lr, row 3: is NaN"},
    {"f['update/n_samples'][0] = 3", "/update/sample_ids, row 0: "},
    {"f['update/n_samples'][0] = 0", "/update/n_samples, row 0: is 0, expected a number of at least 1"},
    {"f['update/sample_ids'][0] = [2, 5]",
     "/update/sample_ids, row 0: is 5, expected a training sample, from 0 to 4"},
    {"f['update/sample_ids'][2] = [4, 1]",
     "/update/sample_ids, row 2: is 1, expected -1 beyond the 1 samples"},
    {"f['update/sample_ids'][1] = [3, 2]",
     "/update/sample_ids, row 1: has sample 2 again, expected each sample once"},
    {"f['update/sample_ids'][2] = [4, 1]; f['update/n_samples'][2] = 2",
     "/update/sample_ids, row 2: has 2 samples, expected 1, what the epoch has left"},
    {"f['observed/step'][1] = 3", "/observed/step, row 1: is 3, expected 4, every observe.every updates"},
    {"shrink('observed', 1)",
     "/observed/step: ends at 2, expected 4, the last multiple of observe.every, as the file is complete"},
    {"shrink('observed', 1); f.attrs['complete'] = 0", ""},
    {"f['observed/tensor_grad_norm'][1, 1] = np.nan", "/observed/tensor_grad_norm, row 1: is NaN"},
    {"shrink('update', 3); f.attrs['complete'] = 0",
     "/eval/step: ends at 4, expected at most 3, the updates of /update"},
    {"shrink('update', 3)",
     "/update/step: has 3 rows, expected 4, train.updates of /spec/text, as the file is complete"},
    // Evaluations.
    {"f['eval/step'][0] = 1",
     "/eval/step, row 0: is 1, expected 0 (0, each multiple of eval.every = 3, then 4)"},
    {"f['eval/step'][1] = 2", "/eval/step, row 1: is 2, expected 3"},
    {"del f['spec']; del f['execution']; f['eval/step'][1] = 2", ""},
    {"del f['spec']; f['eval/step'][1] = 0", "/eval/step, row 1: is 0, expected more than 0"},
    {"shrink('eval', 2); shrink('probe', 2); shrink('activation', 2); shrink('memory', 2)",
     "/eval/step: ends at 3, expected 4, the last update, as the file is complete"},
    {"shrink('eval', 2); shrink('probe', 2); shrink('activation', 2); shrink('memory', 2); "
     "f.attrs['complete'] = 0",
     ""},
    {"f['eval/loss'][1] = np.nextafter(7 / 3, 0)", ""},
    {"f['eval/loss'][1] = 7 / 3 * (1 + 1e-15)", "/eval/loss, row 1: is 2.33333"},
    {"f['eval/n_tokens'][2] = 4", "/eval/n_tokens, row 2: is 4, expected 3, the held-out targets"},
    {"f['eval/nll_sum'][0] = np.nan", "/eval/nll_sum, row 0: is NaN"},
    {"f['eval/loss_adapter_off'][0] = -1", "/eval/loss_adapter_off, row 0: is -1"},
    {"f['eval/seconds'][0] = -1", "/eval/seconds, row 0: is -1"},
    {"f['probe/sample'][2] = 2", "/probe/sample, row 2: is 2, expected a held-out sample, below 2"},
    {"f['probe/position'][2] = 2",
     "/probe/position, row 2: is 2, expected below 2, the length of held-out sample 1"},
    {"f['probe/position'][1] = 1",
     "/probe/position, row 1: is 1, expected samples and, in each, positions that ascend"},
    {"f['probe/position'][0] = 0", "/probe/position, row 0: is 0, expected at least 1"},
    {"f['probe/target'][1] = -1", "/probe/target, row 1: is -1, expected a token id"},
    {"f['probe/nll'][2, 1] = np.inf", "/probe/nll, row 2: is inf, expected a finite number"},
    {"f['probe/topk_id'][1, 0, 0] = -1",
     "/probe/topk_id, row 1: is -1 with the logit 5, expected a token id"},
    {"f['probe/topk_id'][1, 0, 1] = 0",
     "/probe/topk_id, row 1: is 0 with the logit 5 after 5, expected the largest first"},
    {"f['probe/topk_logit'][1, 0, 3] = 9", "/probe/topk_id, row 1: is 3 with the logit 9 after 4"},
    {"f['probe/topk_logit'][1, 0, 0] = np.inf",
     "/probe/topk_id, row 1: is 0 with the logit inf, expected a token id with its logit"},
    {"f['update/lr'][2] = 0.0",
     "/activation/update_norm, row 1: is 0.1, expected 0, as the update's learning rate is 0"},
    {"f['load/mean'][1] = np.nan", "/load/mean, row 1: is NaN, expected a finite number"},
    {"f['load/rms'][1] = np.inf", "/load/rms, row 1: is inf, expected a finite number of at least 0"},
    {"f['activation/rms'][1, 1] = np.nan", "/activation/rms, row 1: is NaN"},
    {"f['activation/update_norm'][0, 1] = 0.5",
     "/activation/update_norm, row 0: is 0.5, expected 0 before the first update"},
    {"put('activation/ba_norm', np.ones((3, 2)))",
     "/activation/ba_norm: has 2 columns, expected one for two of the 2"},
    {"f['memory/host_bytes'][2] = 7",
     "/memory/host_bytes, row 2: is 7, expected at least 1003 (a peak so far)"},
    // Audits.
    {"f['audit/verdict'][1] = 5", "/audit/verdict, row 1: is 5, expected 0 to 4 (PASS,"},
    {"f['audit/scope'][0] = -1", "/audit/scope, row 0: is -1, expected 0 to 1 (batch,microbatch)"},
    {"f['audit/micro_batch'][0] = 0", "/audit/micro_batch, row 0: is 0, expected -1 with scope batch"},
    {"f['audit/step'][1] = 1", "/audit/step, row 1: is 1, expected at least 2 (steps do not descend)"},
    {"f['audit/step'][1] = 5", "/audit/step, row 1: is 5, expected at most 4"},
    {"f['audit/relative_error'][0, 1] = -1",
     "/audit/relative_error, row 0: is -1, expected at least 0, or NaN"},
    // Links to snapshots.
    {"del f['snapshot/3']; f['snapshot/3'] = h5py.ExternalLink('/etc/passwd', '/')",
     "/snapshot/3: leads to / of /etc/passwd, expected a link to / of native.snapshots/3.h5"},
    {"del f['snapshot/3']; f['snapshot/3'] = h5py.ExternalLink('native.snapshots/../../3.h5', '/')",
     "/snapshot/3: leads to"},
    {"del f['snapshot/3']; f['snapshot/3'] = h5py.ExternalLink('native.snapshots/3.h5', '/v')",
     "/snapshot/3: leads to /v of"},
    {"del f['snapshot/3']; f['snapshot/3'] = h5py.SoftLink('/snapshot/3')",
     "/snapshot/3: is no external link"},
    {"del f['snapshot/3']",
     "/snapshot/3: is missing, expected a link at each multiple of snapshot.every = 3"},
    {"f['snapshot/03'] = h5py.ExternalLink('native.snapshots/03.h5', '/')",
     "/snapshot/03: is its name, expected the number"},
    {"f['snapshot/2'] = h5py.ExternalLink('native.snapshots/2.h5', '/')",
     "/snapshot/2: there is no such file"},
};

constexpr const char* kPreamble = R"(
import h5py, hashlib, numpy as np, shutil, sys

def put(path, values):
    attributes = dict(f[path].attrs)
    labels = [d.label for d in f[path].dims]
    del f[path]
    f[path] = values
    for name, value in attributes.items():
        if name != "DIMENSION_LABELS":
            f[path].attrs[name] = value
    for d, label in zip(f[path].dims, labels):
        d.label = label
    for d in list(f[path].dims)[len(labels):]:
        d.label = "another"

def text(group, words):
    put(group + "/text", words)
    put(group + "/digest", hashlib.sha256(words.encode()).hexdigest())

def shrink(group, rows):
    for name, dataset in f[group].items():
        if dataset.maxshape and dataset.maxshape[0] is None:
            dataset.resize(rows, axis=0)

for i, change in enumerate(open(sys.argv[2])):
    path = sys.argv[3] % i
    shutil.copy(sys.argv[1], path)
    with h5py.File(path, "r+") as f:
        exec(change)
)";

// One file per change: FOLDER/<i>.h5.
void make_files(const TempFolder& folder) {
  std::string changes;
  for (const Change& change : kChanges) changes += std::string(change.python) + "\n";
  support::write_text(folder / "changes", changes);
  support::write_text(folder / "change.py", kPreamble);
  const auto result = support::run_shell(folder, "/usr/bin/python3 change.py native.h5 changes %d.h5");
  ASSERT_EQ(result.code, 0) << result.err;
}

bool has_h5py() { return std::system("/usr/bin/python3 -c 'import h5py' 2>/dev/null") == 0; }

TEST(Validation, TellsOfEachRuleThatIsBroken) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  make_files(folder);
  int i = 0;
  for (const Change& change : kChanges) {
    const std::string lines = lines_of(validate_trajectory(folder / (std::to_string(i++) + ".h5"), plan));
    if (*change.line)
      EXPECT_NE(lines.find(change.line), lines.npos) << change.python << "\ngives\n" << lines;
    else
      EXPECT_EQ(lines, "") << change.python;
  }
}

TEST(Validation, NamesWhatItDoesNotLookAt) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  const TempFolder folder;
  support::write_whole_trajectory(folder / "native.h5");
  const auto made = support::run_shell(folder,
                                       "/usr/bin/python3 -c \"import h5py; f = h5py.File('native.h5', 'r+'); "
                                       "f['other/thing'] = 1; f['update/extra'] = 2; del f['audit']\"");
  ASSERT_EQ(made.code, 0) << made.err;
  const Validity validity = validate_trajectory(folder / "native.h5", plan);
  EXPECT_EQ(lines_of(validity), "");
  EXPECT_EQ(validity.ignored, (std::vector<std::string>{"/update/extra", "/other"}));
  EXPECT_EQ(validity.absent, (std::vector<std::string>{"ops", "audit"}));
}

TEST(Validation, LooksIntoSnapshots) {
  if (!has_h5py()) GTEST_SKIP() << "/usr/bin/python3 has no h5py";
  const std::pair<const char*, const char*> cases[] = {
      {"del f['v']", ""},
      {"f['other'] = 1", ""},
      {"[f.__delitem__(p) for p in list(f)]", "/snapshot/3: holds no part of a snapshot"},
      {"del f['m/m.lora_B.weight']", "/snapshot/3/m/m.lora_B.weight: is missing"},
      {"f['m/more'] = 1.0", "/snapshot/3/m/more: is there, expected the adapter's tensors only"},
      {"f['adapter/m.lora_A.weight'][1, 2] = np.nan", "/snapshot/3/adapter/m.lora_A.weight, row 1: is NaN"},
      {"f['v/m.lora_A.weight'][1, 2] = -1",
       "/snapshot/3/v/m.lora_A.weight, row 1: is -1, expected a finite number of at least 0"},
      {"del f['gradient/m.lora_A.weight']; f['gradient/m.lora_A.weight'] = np.ones((2, 3), 'f8')",
       "/snapshot/3/gradient/m.lora_A.weight: is float64, expected float32, as the others"},
      {"del f['m/m.lora_A.weight']; f['m/m.lora_A.weight'] = np.ones((3, 2), 'f4')",
       "/snapshot/3/m/m.lora_A.weight: has the shape [3, 2], expected [2, 3], as /adapter/shapes has"},
      {"f.create_dataset('gradient/z', (10**15,), chunks=(512,), dtype='f4')",
       "/snapshot/3/gradient/z: is there"},
      {"f.close(); open(f_name, 'w').write('text')", "/snapshot/3: is not an HDF5 file"},
      {"f.close(); os.remove(f_name)", "/snapshot/3: there is no such file"},
  };
  for (const auto& [change, line] : cases) {
    const TempFolder folder;
    support::write_whole_trajectory(folder / "native.h5");
    const auto made = support::run_shell(
        folder,
        std::string("/usr/bin/python3 -c \"import h5py, os, numpy as np; f_name = 'native.snapshots/3.h5'; "
                    "f = h5py.File(f_name, 'r+'); ") +
            change + "\"");
    ASSERT_EQ(made.code, 0) << made.err;
    const std::string lines = lines_of(validate_trajectory(folder / "native.h5", plan));
    if (*line)
      EXPECT_NE(lines.find(line), lines.npos) << change << "\ngives\n" << lines;
    else
      EXPECT_EQ(lines, "") << change;
  }
}

}  // namespace
}  // namespace tandem
