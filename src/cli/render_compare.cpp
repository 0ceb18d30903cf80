// --digest and --against: every sample's digest, written or compared.
#include <algorithm>
#include <iomanip>
#include <map>
#include <ostream>
#include <vector>

#include "io/trajectory.hpp"
#include "io/trajectory_reader.hpp"
#include "src/base/error.hpp"
#include "src/base/progress.hpp"
#include "src/base/sha256.hpp"
#include "src/base/text.hpp"
#include "src/cli/render_command.hpp"
#include "src/cli/rendered_text.hpp"
#include "src/cli/version.hpp"
#include "src/spec/run_spec.hpp"
#include "src/train/run_log.hpp"

namespace tandem {

namespace {

constexpr std::int64_t kNeighbours = 4;  // tokens shown before and after the first that differs

using Facts = std::map<std::string, std::string>;

struct Rendering {
  Dataset train, held_out;
  Facts facts;  // what the samples follow from

  std::int64_t size() const { return train.samples.size() + held_out.samples.size(); }
};

Dataset load(const RenderJob& job, const std::filesystem::path& file, const std::string& digest,
             RunLog& log) {
  const ProgressBar bar("tokenising " + file.string());
  LoadAids aids{.cache = job.cache, .write_cache = true, .data_digest = digest, .progress = {}};
  aids.progress = [&](double share) { log.progress(bar.line(share)); };
  return load_dataset(file, job.model_dir, job.options, aids);
}

Rendering render_all(const RenderJob& job, std::ostream& warnings) {
  Rendering all;
  const auto tokenizer = job.model_dir / "tokenizer.json";
  all.facts = {{"data.train", sha256_file(job.file)},
               {"data.held_out", job.held_out.empty() ? "none" : sha256_file(job.held_out)},
               {"data.template", job.options.chat_template},
               {"data.max_tokens", cat(job.options.max_tokens)},
               {"data.truncate", job.options.truncate},
               {"data.targets", job.options.targets},
               {"data.special_in_text", job.options.special_in_text},
               {"tokenizer", std::filesystem::exists(tokenizer) ? sha256_file(tokenizer) : "none"}};
  {
    RunLog log(true);
    all.train = load(job, job.file, all.facts["data.train"], log);
    if (!job.held_out.empty()) all.held_out = load(job, job.held_out, all.facts["data.held_out"], log);
  }
  for (const Dataset* data : {&all.train, &all.held_out})
    for (const std::string& warning : data->report.warnings()) warnings << "warning: " << warning << '\n';
  return all;
}

std::string account(const Rendering& all) {
  Sha256 hash;
  std::int64_t tokens = 0, scored = 0;
  for (const Dataset* data : {&all.train, &all.held_out}) {
    tokens += data->report.tokens;
    scored += data->report.target_tokens;
    for (std::int64_t i = 0; i < data->samples.size(); ++i) hash.update(data->samples.digest(i));
  }
  return cat(all.size(), " samples, ", tokens, " tokens (", scored, " scored), digest of all ", hash.hex());
}

// What a file says of the inputs and keys behind its samples: a run's in its spec, another's in its
// provenance.
Facts facts_of(const Trajectory& other) {
  Facts facts = other.provenance;
  for (const auto& [name, value] : canonical_values(other.spec_text)) facts[name] = value;
  return facts;
}

void require_same_inputs(const Facts& here, const Trajectory& other) {
  const Facts there = facts_of(other);
  for (const char* name : {"data.train", "data.held_out", "data.max_tokens", "data.truncate", "data.targets",
                           "data.special_in_text", "tokenizer"})
    if (const auto found = there.find(name); found != there.end() && found->second != here.at(name))
      throw Error(ErrorKind::kInput, cat(other.path.string(), ": was made with ", name, " = ", found->second,
                                         ", here it is ", here.at(name), ": nothing to compare"));
}

std::string mark_word(std::int64_t mark) { return mark ? "scored" : ""; }

// The first tokens of both that differ in id or mark, with their neighbours.
void show_tokens(const SampleSet& samples, std::int64_t i, const RenderedSample& theirs,
                 const Tokenizer* tokenizer, std::ostream& out) {
  const auto ids = samples.ids(i);
  const auto marks = samples.targets(i);
  const auto ours_size = static_cast<std::int64_t>(ids.size());
  const auto theirs_size = static_cast<std::int64_t>(std::min(theirs.ids.size(), theirs.targets.size()));
  const auto equal = [&](std::int64_t p) {
    return p < ours_size && p < theirs_size && ids[p] == theirs.ids[p] && marks[p] == theirs.targets[p];
  };
  std::int64_t first = 0;
  while (first < std::min(ours_size, theirs_size) && equal(first)) ++first;
  if (first == ours_size && first == theirs_size) {
    out << "token by token they are equal: the digest in the file is not that of its ids\n";
    return;
  }
  const auto cell = [&](bool exists, std::int64_t id, std::int64_t mark) {
    return exists ? cat(id, " ", quoted_token(id, tokenizer), mark ? " " : "", mark_word(mark))
                  : std::string("-");
  };
  out << "the first difference is at token " << first << ":\n";
  const std::int64_t begin = std::max<std::int64_t>(0, first - kNeighbours);
  const std::int64_t end = std::min(std::max(ours_size, theirs_size), first + kNeighbours + 1);
  std::vector<std::string> left, right;
  std::size_t width = 4;
  for (std::int64_t p = begin; p < end; ++p) {
    left.push_back(p < ours_size ? cell(true, ids[p], marks[p]) : "-");
    right.push_back(p < theirs_size ? cell(true, theirs.ids[p], theirs.targets[p]) : "-");
    width = std::max(width, left.back().size());
  }
  const auto line = [&](const std::string& number, const std::string& a, const std::string& b, bool here) {
    out << (here ? "> " : "  ") << std::setw(6) << number << "  " << a
        << std::string(width - a.size() + 2, ' ') << b << '\n';
  };
  line("token", "here", "there", false);
  for (std::int64_t p = begin; p < end; ++p) line(cat(p), left[p - begin], right[p - begin], p == first);
}

template <class T>
const T* at(const std::vector<T>& column, std::int64_t i) {
  return i < static_cast<std::int64_t>(column.size()) ? &column[static_cast<std::size_t>(i)] : nullptr;
}

// The samples of one set, here and in the file, where its first is number `offset`.
struct Pairing {
  const char* name;  // "training"
  const std::filesystem::path& file;
  const SampleSet& samples;
  std::int64_t offset, theirs;
  std::vector<std::int64_t> different = {};  // indices in the set, of those that both have
};

void find_differences(Pairing& pair, const Trajectory::Render& other) {
  for (std::int64_t i = 0; i < std::min(pair.samples.size(), pair.theirs); ++i) {
    const RenderRow ours = render_row(pair.samples, i);
    const auto differs = [&](const auto& column, const auto& value) {
      const auto* found = at(column, pair.offset + i);
      return found && *found != value;
    };
    if (differs(other.digest, ours.digest) || differs(other.n_ids, ours.n_ids) ||
        differs(other.n_targets, ours.n_targets) || differs(other.last_target_id, ours.last_target_id))
      pair.different.push_back(i);
  }
}

void show_difference(const Pairing& pair, const Trajectory& other, const std::filesystem::path& model_dir,
                     std::ostream& out) {
  const std::int64_t i = pair.different.front();
  const RenderRow ours = render_row(pair.samples, i);
  const auto said = [&](const auto& column) {
    const auto* found = at(column, pair.offset + i);
    return found ? cat(*found) : std::string("not in the file");
  };
  out << pair.name << " sample " << i << " (" << pair.file.string() << " line " << pair.samples.line(i)
      << ") differs\n"
      << "  tokens       here " << ours.n_ids << ", there " << said(other.render->n_ids) << '\n'
      << "  scored       here " << ours.n_targets << ", there " << said(other.render->n_targets) << '\n'
      << "  last scored  here " << ours.last_target_id << ", there " << said(other.render->last_target_id)
      << '\n'
      << "  digest       here " << ours.digest << ", there " << said(other.render->digest) << '\n';
  const std::optional<Tokenizer> tokenizer = tokenizer_of(model_dir);
  const Tokenizer* known = tokenizer ? &*tokenizer : nullptr;
  if (const auto sample = read_rendered_sample(other.path, pair.offset + i))
    show_tokens(pair.samples, i, *sample, known, out);
  else
    out << "the file holds no token ids (render --digest --with-ids and the peers' render.py write them); "
           "here:\n"
        << sample_text(pair.samples, i, known, false) << '\n';
}

}  // namespace

int render_digest(const RenderJob& job, const std::filesystem::path& file, bool with_ids, std::ostream& out,
                  std::ostream& warnings) {
  const Rendering all = render_all(job, warnings);
  TrajectoryHeader header;
  header.records_updates = header.records_eval = false;
  header.provenance = all.facts;
  const Version v = version();
  header.provenance.insert({{"version", v.version}, {"git", v.git}, {"build", build_text(v)}});
  TrajectoryWriter writer(file, header, 0.0);
  writer.set_render(all.train.samples, all.held_out.samples, all.train.report.template_digest, with_ids);
  writer.finish();
  out << file.string() << ": " << account(all) << std::endl;
  return 0;
}

int render_against(const RenderJob& job, const std::filesystem::path& file, std::ostream& out,
                   std::ostream& warnings) {
  const Trajectory other = read_untrusted_trajectory(file);
  if (!other.render || other.render->digest.empty())
    throw Error(ErrorKind::kInput, cat(file.string(), ": tells of no samples (/render/digest)"));
  const Rendering all = render_all(job, warnings);
  require_same_inputs(all.facts, other);

  const auto n_other = static_cast<std::int64_t>(other.render->digest.size());
  const std::int64_t n_train = other.render->n_train;
  Pairing pairs[] = {{"training", job.file, all.train.samples, 0, n_train},
                     {"held-out", job.held_out, all.held_out.samples, n_train, n_other - n_train}};
  std::int64_t different = 0;
  bool other_count = false;
  for (Pairing& pair : pairs) {
    find_differences(pair, *other.render);
    if (different == 0 && !pair.different.empty()) show_difference(pair, other, job.model_dir, out);
    different += static_cast<std::int64_t>(pair.different.size());
    if (pair.samples.size() == pair.theirs) continue;
    other_count = true;
    out << pair.name << " samples: here " << pair.samples.size() << ", there " << pair.theirs << '\n';
  }
  out.flush();
  if (different > 0 || other_count)
    throw Error(ErrorKind::kDisagreement,
                cat(file.string(), " (", other.stack, "): ", different, " of ", all.size(), " samples differ",
                    other_count ? ", and the numbers of samples" : ""));
  out << file.string() << " (" << other.stack << "): equal; " << account(all) << std::endl;
  return 0;
}

}  // namespace tandem
