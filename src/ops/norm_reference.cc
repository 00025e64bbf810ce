// The direct formulas of the normalisations, on values with error bounds.
#include "ops/norm_common.h"

namespace tilewright::ops::norm {

Groups::Groups(const Dims& x, const Dims& shared) {
  const Dims stride = row_major_strides(x);
  base_ = inner_ = {0};
  for (size_t d = 0; d < x.size(); ++d) {
    std::vector<int64_t>& list = shared[d] == x[d] ? base_ : inner_;
    std::vector<int64_t> longer;
    longer.reserve(list.size() * size_t(x[d]));
    for (int64_t start : list)
      for (int64_t i = 0; i < x[d]; ++i) longer.push_back(start + i * stride[d]);
    list = std::move(longer);
  }
}

namespace {

// Mean of (x - mean)^2 over one group, for a mean known up to an error delta. Because the exact deviations sum to
// zero, sum (x - mean - delta)^2 = sum (x - mean)^2 + n delta^2: the mean's error counts squared, which term by term
// propagation (2 |x - mean| delta each) would not see, and the bound stays useful for long rows.
Bounded mean_square(const Values& x, const Groups& groups, int64_t group, Bounded mean) {
  const Rounding& r = t_rounding;
  const double n = double(groups.size());
  double sum = 0, propagated = 0, magnitude = 0, x_errors = 0;
  for (int64_t k = 0; k < groups.size(); ++k) {
    const Bounded a = x[groups.element(group, k)];
    const double d = a.v - mean.v;
    sum += d * d;
    propagated += 2 * std::fabs(d) * a.e + a.e * a.e;
    x_errors += a.e;
    const double largest = std::fabs(d) + a.e + mean.e;
    magnitude += largest * largest;
  }
  propagated += n * mean.e * mean.e + 2 * mean.e * x_errors;
  // Of each term: the subtraction (twice, squared), the square, the n additions in any order.
  const double rounding = (n + 3) * r.u * magnitude + n * r.eta;
  if (!(magnitude <= r.overflow)) return {sum / n, std::isnan(sum) ? 0 : kInfinity};
  return Bounded(sum, propagated + rounding) / Bounded(n);
}

}  // namespace

Bounded inverse_deviation(Bounded variance, double epsilon) {
  // One more step for the sum with epsilon.
  return bounded::apply([&](double v) { return 1 / std::sqrt((v < 0 ? 0 : v) + epsilon); }, variance,
                        kFunctionUlps + 1);
}

Moments moments(const RefContext& c, const RefTensor& tensor, const Dims& statistics, double epsilon, bool centred) {
  const Groups groups(tensor.dim(), statistics);
  const Values x(tensor);
  Moments m;
  const size_t count = size_t(groups.count());
  m.variance.resize(count);
  m.inv.resize(count);
  if (centred) m.mean.resize(count);
  c.for_each(groups.count(), [&](int64_t g) {
    Bounded mean = 0;
    if (centred) {
      BoundedSum sum;
      for (int64_t k = 0; k < groups.size(); ++k) sum.add(x[groups.element(g, k)]);
      m.mean[size_t(g)] = mean = sum.total() / Bounded(double(groups.size()));
    }
    m.variance[size_t(g)] = mean_square(x, groups, g, mean);
    m.inv[size_t(g)] = inverse_deviation(m.variance[size_t(g)], epsilon);
  });
  return m;
}

Moments saved_moments(const RefTensor* mean, const RefTensor& inv) {
  const auto all = [](const RefTensor& t) {
    const Values v(t);
    std::vector<Bounded> r(size_t(v.size()));
    for (int64_t i = 0; i < v.size(); ++i) r[size_t(i)] = v[i];
    return r;
  };
  Moments m;
  if (mean) m.mean = all(*mean);
  m.inv = all(inv);
  return m;
}

void store(const std::vector<Bounded>& values, RefContext& c, size_t out_port) {
  if (c.has_out(out_port)) c.out(out_port).values = values;
}

void normalize(RefContext& c, const RefTensor& tensor, const Dims& statistics, const Moments& m,
               const RefTensor& scale_tensor, const RefTensor* bias_tensor, RefTensor& y) {
  const Dims& dims = tensor.dim();
  const Groups groups(dims, statistics);
  const Values x(tensor);
  const RefBroadcast scale(scale_tensor, dims);
  const RefBroadcast bias(bias_tensor ? *bias_tensor : scale_tensor, dims);
  c.for_each(groups.count(), [&](int64_t g) {
    for (int64_t k = 0; k < groups.size(); ++k) {
      const int64_t i = groups.element(g, k);
      const Bounded centred = m.mean.empty() ? x[i] : x[i] - m.mean[size_t(g)];
      const Bounded scaled = centred * m.inv[size_t(g)] * scale.at_linear(i);
      y.values[size_t(i)] = bias_tensor ? scaled + bias.at_linear(i) : scaled;
    }
  });
}

void reference_forward(RefContext& c, const Dims& statistics) {
  const Moments m = moments(c, c.in(0), statistics, c.scalar_in(3), true);
  normalize(c, c.in(0), statistics, m, c.in(1), &c.in(2), c.out(0));
  store(m.mean, c, 1);
  store(m.inv, c, 2);
}

void reference_gradients(RefContext& c, const GradientPorts& p, const Dims& statistics, const Moments& m) {
  const Dims& dims = c.in(p.x).dim();
  const Dims& parameters = c.in(p.scale).dim();
  const bool centred = p.mean >= 0;
  const Groups groups(dims, statistics), shared(dims, parameters);
  const Values x(c.in(p.x)), dy(c.in(p.dy));
  const RefBroadcast scale(c.in(p.scale), dims);
  const double n = double(groups.size());

  std::vector<Bounded> xhat(size_t(x.size()));
  c.for_each(groups.count(), [&](int64_t g) {
    for (int64_t k = 0; k < groups.size(); ++k) {
      const int64_t i = groups.element(g, k);
      xhat[size_t(i)] = (centred ? x[i] - m.mean[size_t(g)] : x[i]) * m.inv[size_t(g)];
    }
  });

  std::vector<Bounded> dscale(size_t(shared.count())), dbias(dscale.size());
  c.for_each(shared.count(), [&](int64_t g) {
    BoundedSum scale_sum, bias_sum;
    for (int64_t k = 0; k < shared.size(); ++k) {
      const int64_t i = shared.element(g, k);
      scale_sum.add(dy[i] * xhat[size_t(i)]);
      bias_sum.add(dy[i]);
    }
    dscale[size_t(g)] = scale_sum.total();
    dbias[size_t(g)] = bias_sum.total();
  });
  store(dscale, c, 1);
  store(dbias, c, 2);

  std::vector<Bounded>& dx = c.out(0).values;
  c.for_each(groups.count(), [&](int64_t g) {
    const Bounded inv = m.inv[size_t(g)];
    if (parameters == statistics) {
      const Bounded mean_dy = dbias[size_t(g)] / Bounded(n), slope = dscale[size_t(g)] / Bounded(n);
      for (int64_t k = 0; k < groups.size(); ++k) {
        const int64_t i = groups.element(g, k);
        const Bounded t = centred ? dy[i] - mean_dy : dy[i];
        dx[size_t(i)] = scale.at_linear(i) * inv * (t - xhat[size_t(i)] * slope);
      }
      return;
    }
    BoundedSum g_sum, slope_sum;
    for (int64_t k = 0; k < groups.size(); ++k) {
      const int64_t i = groups.element(g, k);
      g_sum.add(dy[i] * scale.at_linear(i));
      slope_sum.add(dy[i] * xhat[size_t(i)] * scale.at_linear(i));
    }
    const Bounded mean_g = g_sum.total() / Bounded(n), slope = slope_sum.total() / Bounded(n);
    for (int64_t k = 0; k < groups.size(); ++k) {
      const int64_t i = groups.element(g, k);
      const Bounded gi = dy[i] * scale.at_linear(i);
      dx[size_t(i)] = inv * ((centred ? gi - mean_g : gi) - xhat[size_t(i)] * slope);
    }
  });
}

void reference_backward(RefContext& c, const GradientPorts& p, const Dims& statistics) {
  const RefTensor* mean = p.mean >= 0 ? &c.in(size_t(p.mean)) : nullptr;
  reference_gradients(c, p, statistics, saved_moments(mean, c.in(p.inv)));
}

void reference_running(RefContext& c, const RunningPorts& p, const Moments& m, Bounded n) {
  if (!c.has_in(p.momentum)) return;
  const Bounded momentum = c.scalar_in(p.momentum), keep = Bounded(1) - momentum;
  const auto next = [&](size_t previous, const std::vector<Bounded>& batch, Bounded factor, size_t out) {
    if (!c.has_out(out)) return;
    const Values old(c.in(previous));
    for (int64_t i = 0; i < old.size(); ++i)
      c.out(out).values[size_t(i)] = keep * old[i] + momentum * (batch[size_t(i)] * factor);
  };
  const Bounded less = n - Bounded(1);
  next(p.mean, m.mean, 1, p.next_mean);
  next(p.variance, m.variance, n / (less.v < 1 ? Bounded(1) : less), p.next_variance);
}

}  // namespace tilewright::ops::norm
