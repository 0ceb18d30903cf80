// The part of GoogleTest's interface that the tests of the CUDA kernels use, for machines that have a CUDA
// toolkit and a compiler and nothing else. Not GoogleTest: one file, tests run in the order of their names'
// registration, one line each.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace testing {

class Test {
 public:
  virtual ~Test() = default;
  virtual void TestBody() = 0;
};

struct TestCase {
  std::string name;  // "Suite.Name"
  std::function<std::unique_ptr<Test>()> make;
};
inline std::vector<TestCase>& all_tests() {
  static std::vector<TestCase> tests;
  return tests;
}
// Of the test that runs now: failures, and what SCOPED_TRACE says of the place.
struct Running {
  int failures = 0;
  std::vector<std::string> traces;
};
inline Running& running() {
  static Running now;
  return now;
}

template <class... T>
struct Types {};

template <template <class> class TestOf, class Names, class... T>
bool register_typed(const std::string& suite, const std::string& name, Types<T...>) {
  int index = 0;
  (all_tests().push_back({suite + "/" + Names::template GetName<T>(index++) + "." + name,
                          [] { return std::unique_ptr<Test>(new TestOf<T>); }}),
   ...);
  return true;
}
inline bool register_one(const char* name, std::function<std::unique_ptr<Test>()> make) {
  all_tests().push_back({name, std::move(make)});
  return true;
}

class Message {
 public:
  template <class T>
  Message& operator<<(const T& value) {
    text_ << value;
    return *this;
  }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
};

// Assigning the message, all of whose << come first, reports the failure.
struct Failure {
  const char* file;
  int line;
  std::string text;
  void operator=(const Message& message) const {
    if (++running().failures > 10) return;
    std::printf("%s:%d: %s\n", file, line, text.c_str());
    if (!message.text().empty()) std::printf("  %s\n", message.text().c_str());
    for (const std::string& trace : running().traces) std::printf("  at %s\n", trace.c_str());
  }
};

class Trace {
 public:
  explicit Trace(std::string text) { running().traces.push_back(std::move(text)); }
  ~Trace() { running().traces.pop_back(); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;
};

template <class T>
std::string shown(const T& value) {
  if constexpr (requires(std::ostream & out) { out << value; }) {
    std::ostringstream out;
    out.precision(9);
    out << value;
    return out.str();
  } else {
    return "(a value)";
  }
}

// "" where it holds. NaN holds in none of them.
template <class A, class B, class Holds>
std::string compared(const A& a, const B& b, const char* words, Holds holds) {
  if (holds(a, b)) return "";
  return std::string(words) + ": " + shown(a) + " and " + shown(b);
}

// Runs those whose name begins with one of `wanted` (all where it is empty). Returns how many failed, -1
// where none was run.
inline int run_tests(const std::vector<std::string>& wanted) {
  int failed = 0, n = 0;
  for (const TestCase& test : all_tests()) {
    bool chosen = wanted.empty();
    for (const std::string& prefix : wanted) chosen = chosen || test.name.rfind(prefix, 0) == 0;
    if (!chosen) continue;
    ++n;
    running() = {};
    try {
      test.make()->TestBody();
    } catch (const std::exception& error) {
      ++running().failures;
      std::printf("%s\n", error.what());
    }
    failed += running().failures > 0;
    std::printf("%s %s\n", running().failures > 0 ? "FAILED" : "ok    ", test.name.c_str());
    std::fflush(stdout);
  }
  std::printf("%d of %d tests failed\n", failed, n);
  return n == 0 ? -1 : failed;
}

}  // namespace testing

#define TEST(suite, name)                                                                     \
  struct suite##_##name : ::testing::Test {                                                   \
    void TestBody() override;                                                                 \
  };                                                                                          \
  static const bool suite##_##name##_registered = ::testing::register_one(                    \
      #suite "." #name, [] { return std::unique_ptr<::testing::Test>(new suite##_##name); }); \
  void suite##_##name::TestBody()

#define TYPED_TEST_SUITE(fixture, types, names) \
  using fixture##_types = types;                \
  using fixture##_names = names
#define TYPED_TEST(fixture, name)                                                                       \
  template <class Parameter>                                                                            \
  struct fixture##_##name : fixture<Parameter> {                                                        \
    using TypeParam = Parameter;                                                                        \
    void TestBody() override;                                                                           \
  };                                                                                                    \
  static const bool fixture##_##name##_registered =                                                     \
      ::testing::register_typed<fixture##_##name, fixture##_names>(#fixture, #name, fixture##_types{}); \
  template <class Parameter>                                                                            \
  void fixture##_##name<Parameter>::TestBody()

#define TANDEM_SHIM_JOIN_(a, b) a##b
#define TANDEM_SHIM_JOIN(a, b) TANDEM_SHIM_JOIN_(a, b)
#define SCOPED_TRACE(text) const ::testing::Trace TANDEM_SHIM_JOIN(trace_, __LINE__)(text)

// `if ... else` so that it is one statement, and << goes to the message.
#define TANDEM_SHIM_EXPECT(text, leave)                  \
  if (const std::string wrong_ = (text); wrong_.empty()) \
    ;                                                    \
  else                                                   \
    leave ::testing::Failure{__FILE__, __LINE__, wrong_} = ::testing::Message()
#define TANDEM_SHIM_COMPARE(a, b, op, leave)                                                       \
  TANDEM_SHIM_EXPECT(::testing::compared(a, b, "not " #a " " #op " " #b,                           \
                                         [](const auto& x_, const auto& y_) { return x_ op y_; }), \
                     leave)
#define TANDEM_SHIM_BOOL(a, want, leave) TANDEM_SHIM_EXPECT(std::string((a) ? "" : want ": " #a), leave)

#define EXPECT_TRUE(a) TANDEM_SHIM_BOOL(a, "not true", )
#define ASSERT_TRUE(a) TANDEM_SHIM_BOOL(a, "not true", return )
#define EXPECT_FALSE(a) TANDEM_SHIM_BOOL(!(a), "true", )
#define EXPECT_EQ(a, b) TANDEM_SHIM_COMPARE(a, b, ==, )
#define ASSERT_EQ(a, b) TANDEM_SHIM_COMPARE(a, b, ==, return )
#define EXPECT_LE(a, b) TANDEM_SHIM_COMPARE(a, b, <=, )
#define ASSERT_LE(a, b) TANDEM_SHIM_COMPARE(a, b, <=, return )
#define EXPECT_LT(a, b) TANDEM_SHIM_COMPARE(a, b, <, )
#define EXPECT_GT(a, b) TANDEM_SHIM_COMPARE(a, b, >, )
#define EXPECT_STREQ(a, b) \
  TANDEM_SHIM_EXPECT(::testing::compared(std::string(a), std::string(b), "not equal", std::equal_to<>{}), )
#define ADD_FAILURE() ::testing::Failure{__FILE__, __LINE__, "failed"} = ::testing::Message()
