// All numbers of the mirror are float64 in two-dimensional arrays, row-major as model files have them: a row
// is a token or an output channel.
#pragma once

#include <Eigen/Core>

namespace tandem::mirror {

using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using Column = Eigen::VectorXd;
using Row = Eigen::RowVectorXd;
using Eigen::Index;

}  // namespace tandem::mirror
