"""The statistics against scipy, statsmodels, and brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from leaderboard import statistics

pytestmark = pytest.mark.slow


def cell(rng, seeds=3, problems=40, samples=8, shift=0.0):
    chance = np.clip(rng.beta(0.6, 0.8, problems) + shift + rng.normal(0, 0.05, (seeds, 1)), 0, 1)
    return rng.binomial(samples, chance) / samples


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 9), st.data())
def test_pass_at_k_is_the_share_of_subsets_with_a_right_sample(samples, data):
    right = data.draw(st.integers(0, samples))
    k = data.draw(st.integers(1, samples))
    outcomes = [True] * right + [False] * (samples - right)
    subsets = list(combinations(outcomes, k))
    expected = sum(any(subset) for subset in subsets) / len(subsets)
    assert statistics.pass_at_k(right, samples, k) == pytest.approx(expected, abs=1e-12)


def test_pass_at_k_is_stable_for_many_samples_and_refuses_what_cannot_be():
    assert statistics.pass_at_k([0, 10_000], 10_000, 5_000) == pytest.approx([0, 1])
    assert statistics.pass_at_k([1], 10_000, 5_000) == pytest.approx([0.5])
    for right, samples, k in (([1], 4, 0), ([1], 4, 5), ([5], 4, 1), ([-1], 4, 1)):
        with pytest.raises(ValueError, match=r"0\.\.4|1\.\.4"):
            statistics.pass_at_k(right, samples, k)


def test_pass_at_1_is_the_mean_over_samples_then_problems():
    assert statistics.pass_at_1([0, 2, 4], 4) == pytest.approx(0.5)


def test_the_sampling_error_is_the_spread_of_repeated_evaluations():
    rng = np.random.default_rng(0)
    chance = rng.beta(0.5, 0.5, 30)
    counts = rng.binomial(16, chance, (4000, 30))
    spread = (counts / 16).mean(axis=1).std(ddof=1)
    estimated = np.sqrt(np.mean([statistics.sampling_error(row, 16) ** 2 for row in counts]))
    assert estimated == pytest.approx(spread, rel=0.04)
    assert np.isnan(statistics.sampling_error([0, 1], 1))


def test_the_question_error_is_the_standard_error_of_problem_means():
    values = cell(np.random.default_rng(1), seeds=1)[0]
    assert statistics.question_error(values) == pytest.approx(stats.sem(values))


def test_one_seed_many_problems_matches_the_wilson_interval_of_statsmodels():
    """With one sample a problem the effective sample size is P - 1, and t is near z: the classical interval."""
    rng = np.random.default_rng(2)
    right = (rng.random(5000) < 0.3).astype(float)
    found = statistics.estimate([right[None]])
    low, high = proportion_confint(int(right.sum()), 5000, method="wilson")
    assert (found.low, found.high) == pytest.approx((low, high), abs=2e-5)


@pytest.mark.parametrize("value", [0.0, 1.0])
def test_an_interval_of_all_wrong_or_all_right_is_not_a_point(value):
    found = statistics.estimate([np.full((3, 30), value)])
    assert found.value == value
    assert found.high - found.low == pytest.approx(0.12, abs=0.02)
    assert 0 <= found.low <= value <= found.high <= 1


def test_these_questions_uses_student_t_over_seed_scores():
    values = cell(np.random.default_rng(3), seeds=4)
    found = statistics.estimate([values], population="these_questions")
    scores = values.mean(axis=1)
    assert found.error == pytest.approx(stats.sem(scores))
    low, high = stats.t.interval(0.95, 3, loc=scores.mean(), scale=stats.sem(scores))
    # Wilson's centre moves towards a half by less than a tenth of the width.
    assert found.low == pytest.approx(low, abs=0.1 * (high - low))
    assert found.high == pytest.approx(high, abs=0.1 * (high - low))
    assert found.leaves_out == ""


def test_one_seed_says_what_its_interval_leaves_out():
    values = cell(np.random.default_rng(4), seeds=1)
    for population in ("new_questions", "these_questions"):
        found = statistics.estimate([values], population=population, samples=[8])
        assert found.leaves_out == statistics.ONE_SEED
    these = statistics.estimate([values], population="these_questions", samples=[8])
    assert these.error == pytest.approx(statistics.sampling_error(values[0] * 8, 8))
    new = statistics.estimate([values])
    assert new.error == pytest.approx(stats.sem(values[0]))


def test_one_problem_says_what_its_interval_leaves_out():
    values = [np.array([[0.25], [0.5], [0.75]])]
    found = statistics.estimate(values)
    assert (found.value, found.low, found.high, found.leaves_out) == (0.5, 0, 1, statistics.ONE_PROBLEM)
    assert np.isnan(found.error)
    several = statistics.estimate([*values, cell(np.random.default_rng(4))])
    assert several.leaves_out == statistics.ONE_PROBLEM


def test_crossed_variance_components_recover_the_truth():
    """The method of moments is unbiased: its mean over many tables is the variance of the score over tables."""
    rng = np.random.default_rng(5)
    tables = []
    for _ in range(3000):
        seed = rng.normal(0, 0.05, (3, 1))
        problem = rng.normal(0, 0.2, 30)
        tables.append(0.5 + seed + problem + rng.normal(0, 0.1, (3, 30)))
    scores = [table.mean() for table in tables]
    variance = np.mean([statistics.estimate([table]).error ** 2 for table in tables])
    assert variance == pytest.approx(np.var(scores), rel=0.06)


def test_macro_average_is_the_mean_of_benchmarks_with_its_own_error():
    rng = np.random.default_rng(6)
    cells = [cell(rng, seeds=1, problems=p) for p in (30, 500)]
    found = statistics.estimate(cells)
    assert found.value == pytest.approx(np.mean([c.mean() for c in cells]))
    assert found.error == pytest.approx(np.hypot(*[stats.sem(c[0]) for c in cells]) / 2)


def test_mean_over_seeds_matches_scipy():
    scores = [0.27, 0.266, 0.276]
    found = statistics.mean_over_seeds(scores)
    assert (found.low, found.high) == pytest.approx(
        stats.t.interval(0.95, 2, loc=np.mean(scores), scale=stats.sem(scores))
    )
    one = statistics.mean_over_seeds([0.3])
    assert np.isnan(one.low)
    assert one.leaves_out == statistics.ONE_SEED


def test_with_one_seed_the_comparison_is_the_paired_t_test():
    rng = np.random.default_rng(7)
    a, b = cell(rng, seeds=1), cell(rng, seeds=1, shift=0.1)
    found = statistics.compare([a], [b])
    expected = stats.ttest_rel(a[0], b[0])
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    interval = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high))


def test_without_seed_variance_the_comparison_is_the_paired_t_test_of_problem_means():
    """Three seeds whose scores agree: what is left of their variance is nothing."""
    rng = np.random.default_rng(70)
    a, b = (np.repeat(cell(rng, seeds=1, shift=shift), 3, axis=0) for shift in (0.0, 0.08))
    expected = stats.ttest_rel(a[0], b[0])
    assert statistics.compare([a], [b]).p_value == pytest.approx(expected.pvalue, rel=1e-6)


def test_without_problem_variance_the_comparison_is_welchs_test_of_seed_scores():
    rng = np.random.default_rng(71)
    a, b = (np.repeat(rng.normal(mean, 0.05, (3, 1)), 40, axis=1) for mean in (0.4, 0.6))
    expected = stats.ttest_ind(a[:, 0], b[:, 0], equal_var=False)
    assert statistics.compare([a], [b]).p_value == pytest.approx(expected.pvalue, rel=1e-6)


def test_the_comparison_lies_between_satterthwaites_and_one_quantile_for_each_part():
    """Both computed here from the definition, with scipy's t."""
    rng = np.random.default_rng(72)
    for _ in range(20):
        a, b = cell(rng, problems=60), cell(rng, problems=60)
        question = stats.sem(a.mean(axis=0) - b.mean(axis=0)) ** 2
        sides = [side.mean(axis=1).var(ddof=1) / 3 for side in (a, b)]
        residuals = [s - s.mean(axis=1, keepdims=True) - s.mean(axis=0) + s.mean() for s in (a, b)]
        seed = max(0.0, sum(sides) - sum((r**2).sum() / 2 / 59 / 180 for r in residuals))
        df = sum(sides) ** 2 / sum(v**2 / 2 for v in sides)
        total = question + seed
        one = stats.t.ppf(0.975, total**2 / (question**2 / 59 + seed**2 / df)) * np.sqrt(total)
        each = np.sqrt(stats.t.ppf(0.975, 59) ** 2 * question + stats.t.ppf(0.975, df) ** 2 * seed)
        share = seed / total
        found = statistics.compare([a], [b])
        assert found.error**2 == pytest.approx(total)
        half = np.sqrt(share * each**2 + (1 - share) * one**2)
        guard = stats.t.ppf(1 - 0.075, df) * np.sqrt(sum(sides))
        assert (found.high - found.low) / 2 == pytest.approx(max(half, guard), rel=1e-9)


def test_seeds_that_agree_by_chance_do_not_make_a_difference_sure_at_small_levels():
    """The seed scores alone must tell it at three times the level, which is what the p-value of Welch's test says."""
    rng = np.random.default_rng(73)
    means = np.array([[0.0], [0.004], [-0.004]])
    noise = rng.normal(0, 0.2, (2, 3, 400))
    # The seed means lie closer together than the noise of 400 problems would put them: no seed variance is left.
    a, b = noise - noise.mean(axis=2, keepdims=True) + 0.5 + means
    b = b + 0.04
    welch = stats.ttest_ind(a.mean(axis=1), b.mean(axis=1), equal_var=False).pvalue
    assert statistics.compare([a], [b]).p_value == pytest.approx(welch / 3, rel=1e-6)
    assert stats.ttest_rel(a.mean(axis=0), b.mean(axis=0)).pvalue < welch / 30  # problems alone are far surer


def test_many_tables_at_once_are_each_as_alone():
    rng = np.random.default_rng(74)
    first, second = (np.stack([cell(rng, problems=25) for _ in range(6)]) for _ in range(2))
    difference, *parts = statistics.difference_parts([first], [second])
    half = statistics.difference_half_width(*parts, 0.025)
    value, low, high, _ = statistics.score_interval([first])
    for index in range(6):
        alone = statistics.compare([first[index]], [second[index]])
        assert (alone.low, alone.high) == pytest.approx(
            (difference[index] - half[index], difference[index] + half[index])
        )
        score = statistics.estimate([first[index]])
        assert (score.value, score.low, score.high) == pytest.approx((value[index], low[index], high[index]))


def test_training_scores_are_compared_by_welch():
    a, b = [0.27, 0.26, 0.28], [0.23, 0.21, 0.26, 0.22]
    found = statistics.compare_seed_scores(a, b)
    expected = stats.ttest_ind(a, b, equal_var=False)
    assert found.p_value == pytest.approx(expected.pvalue, rel=1e-6)
    both = CompareMeans(DescrStatsW(a), DescrStatsW(b))
    assert (found.low, found.high) == pytest.approx(both.tconfint_diff(usevar="unequal"))


def test_the_p_value_and_the_interval_agree():
    rng = np.random.default_rng(8)
    for _ in range(50):
        found = statistics.compare([cell(rng)], [cell(rng, shift=0.03)])
        assert (found.p_value < 0.05) == (found.low > 0 or found.high < 0)
        level = 1 - found.p_value
    again = statistics.compare([cell(rng)], [cell(rng, shift=0.1)], level=level)
    assert np.isfinite(again.low)


def test_the_interval_at_the_level_of_the_p_value_ends_at_zero():
    rng = np.random.default_rng(9)
    a, b = [cell(rng)], [cell(rng, shift=0.08)]
    found = statistics.compare(a, b)
    edge = statistics.compare(a, b, level=1 - found.p_value)
    assert min(abs(edge.low), abs(edge.high)) < 1e-6


def test_a_comparison_turns_its_sign_with_its_sides():
    rng = np.random.default_rng(10)
    a, b = [cell(rng), cell(rng, problems=9)], [cell(rng), cell(rng, problems=9)]
    one, two = statistics.compare(a, b), statistics.compare(b, a)
    assert one.difference == pytest.approx(-two.difference)
    assert one.p_value == pytest.approx(two.p_value)
    assert (one.low, one.high) == pytest.approx((-two.high, -two.low))


def test_equal_cells_differ_by_nothing():
    values = [cell(np.random.default_rng(11), seeds=1)]
    found = statistics.compare(values, values)
    assert (found.difference, found.p_value, found.error) == (0, 1, 0)


def test_pairing_needs_the_same_problems():
    with pytest.raises(ValueError, match="same problems"):
        statistics.compare([np.zeros((1, 3))], [np.zeros((1, 4))])
    for bad in ([], [np.zeros((0, 3))], [np.full((1, 2), np.nan)], [np.zeros((1, 3)), np.zeros((2, 3))]):
        with pytest.raises(ValueError, match=r"benchmark|seeds"):
            statistics.as_cell(bad)


def test_the_detectable_difference_is_found_four_times_in_five():
    rng = np.random.default_rng(12)
    problems, tables = 200, 2000
    a = rng.normal(0.5, 0.2, (tables, 1, problems))
    b = a + rng.normal(0, 0.3, (tables, 1, problems))
    gap = np.mean([statistics.compare([x], [y]).detectable for x, y in zip(a[:200], b[:200], strict=True)])
    found = [statistics.compare([x + gap], [y]).p_value < 0.05 for x, y in zip(a, b, strict=True)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)


def test_the_detectable_difference_among_many_is_at_the_level_of_the_first():
    rng = np.random.default_rng(5)
    a, b = ([rng.random((3, 30))] for _ in range(2))
    one, many = statistics.compare(a, b), statistics.compare(a, b, among=20)
    strict = statistics.compare(a, b, level=1 - 0.05 / 20)
    assert many.detectable == pytest.approx(strict.high - strict.difference + 0.8416 * many.error, rel=1e-4)
    assert (many.p_value, many.low, many.high) == (one.p_value, one.low, one.high)
    assert many.detectable > one.detectable


@pytest.mark.parametrize("size", [1, 2, 6, 40])
def test_holm_matches_statsmodels(size):
    rng = np.random.default_rng(size)
    for p_values in (rng.random(size), rng.random(size) ** 6, np.full(size, 0.01), np.arange(size) % 2 / 1.0):
        assert statistics.holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_holm_leaves_unknown_values_out_of_the_family():
    assert statistics.holm([0.01, np.nan, 0.04]) == pytest.approx([0.02, np.nan, 0.04], nan_ok=True)


def test_probability_of_improvement_is_mann_whitney():
    rng = np.random.default_rng(13)
    first = [rng.integers(0, 5, 6), rng.integers(0, 5, 6)]
    second = [rng.integers(0, 5, 4), rng.integers(1, 6, 4)]
    expected = np.mean([stats.mannwhitneyu(a, b).statistic / 24 for a, b in zip(first, second, strict=True)])
    assert statistics.probability_of_improvement(first, second) == pytest.approx(expected)


def test_rank_stability_is_one_for_clear_orders_and_nothing_for_noise():
    rng = np.random.default_rng(14)
    clear = rng.random((4, 200)) + np.arange(4)[:, None]
    assert statistics.rank_stability(clear, splits=200, rng=rng) == pytest.approx(1)
    noise = np.mean([statistics.rank_stability(rng.random((4, 60)), splits=100, rng=rng) for _ in range(60)])
    assert abs(noise) < 0.15
    assert np.isnan(statistics.rank_stability(np.ones((1, 10)), rng=rng))


def test_rank_stability_matches_scipy_on_each_split():
    """Two problems leave one split (and its mirror image): the value is Spearman's of the two columns."""
    rng = np.random.default_rng(15)
    values = rng.random((5, 2))
    expected = stats.spearmanr(values[:, 0], values[:, 1]).statistic
    assert statistics.rank_stability(values, splits=20, rng=rng) == pytest.approx(expected)


def naive_bootstrap(cells, samples, rng, resamples, levels):
    """The hierarchical bootstrap as the textbook writes it: one index at a time."""
    found = np.empty((resamples, len(cells), len(samples)))
    for b in range(resamples):
        for task, k in enumerate(samples):
            problems = cells[0][task].shape[1]
            chosen = rng.integers(0, problems, problems) if "problems" in levels else np.arange(problems)
            for c, values in enumerate(cells):
                seeds = len(values[task])
                picked = rng.integers(0, seeds, seeds) if "seeds" in levels else np.arange(seeds)
                table = values[task][np.ix_(picked, chosen)]
                if "samples" in levels:
                    table = rng.binomial(k, table) / k
                found[b, c, task] = table.mean()
    return found


@pytest.mark.parametrize(
    "levels", [("seeds", "problems", "samples"), ("problems",), ("seeds", "problems"), ("seeds", "samples")]
)
def test_the_vectorised_bootstrap_has_the_law_of_the_naive_one(levels):
    rng = np.random.default_rng(16)
    samples = [8, 4]
    cells = {name: [cell(rng, problems=20, samples=8), cell(rng, problems=30, samples=4)] for name in "ab"}
    fast = statistics.bootstrap(cells, rng=rng, samples=samples, resamples=20_000, levels=levels)
    slow = naive_bootstrap(list(cells.values()), samples, rng, 1500, levels)
    for one, two in (
        (fast.scores[:, :, :2], slow),
        (fast.differences([(0, 1)])[:, :, :2], slow[:, :1] - slow[:, 1:]),
    ):
        assert one.mean(axis=0) == pytest.approx(two.mean(axis=0), abs=0.012)
        assert one.std(axis=0) == pytest.approx(two.std(axis=0), rel=0.08, abs=1e-6)
        for q in (0.025, 0.5, 0.975):
            off = np.abs(np.quantile(one, q, axis=0) - np.quantile(two, q, axis=0))
            assert (off < 0.25 * two.std(axis=0)).all()
    assert fast.scores[:, :, 2] == pytest.approx(fast.scores[:, :, :2].mean(axis=2), abs=1e-6)


def test_the_bootstrap_of_problems_matches_scipy():
    rng = np.random.default_rng(17)
    values = cell(rng, seeds=1, problems=100)
    fast = statistics.bootstrap({"a": [values]}, rng=rng, resamples=20_000, levels=("problems",))
    low, high = statistics.percentile_intervals(fast.scores)[:, 0, 0]
    expected = stats.bootstrap(
        (values[0],), np.mean, n_resamples=20_000, method="percentile", rng=rng
    ).confidence_interval
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=0.004)


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 400), st.integers(0, 2**32 - 1))
def test_percentile_intervals_are_numpys_quantiles(count, seed):
    values = np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32)
    expected = np.quantile(values.astype(float), [0.025, 0.975], axis=0)
    assert statistics.percentile_intervals(values) == pytest.approx(expected, abs=1e-6)


def test_the_bootstrap_is_repeatable_and_explicit():
    values = {"a": [cell(np.random.default_rng(18))]}
    one, two = (
        statistics.bootstrap(values, rng=np.random.default_rng(1), samples=[8], resamples=50).scores for _ in range(2)
    )
    assert (one == two).all()
    with pytest.raises(ValueError, match="samples"):
        statistics.bootstrap(values, rng=np.random.default_rng(1))
    with pytest.raises(ValueError, match="same benchmarks"):
        statistics.bootstrap(values | {"b": [np.zeros((1, 3))]}, rng=np.random.default_rng(1), samples=[8])


def test_published_numbers_are_judged_against_one_further_run():
    rng = np.random.default_rng(19)
    values = [np.clip(cell(rng, problems=200, samples=16) + shift, 0, 1) for shift in (0,)]
    means = statistics.seed_scores(values)
    reach = stats.t.ppf(0.975, 2) * np.sqrt(4 / 3) * means.std(ddof=1)
    found = statistics.check_published(means.mean(), values, samples=[16], margin=1)
    assert (found.low, found.high) == pytest.approx((means.mean() - reach, means.mean() + reach))
    assert found.verdict == "reproduced"
    assert statistics.check_published(means.mean() + 1.01 * reach, values, samples=[16]).verdict == "contradicted"
    wide = statistics.check_published(means.mean(), values, samples=[16], margin=0.5 * reach)
    assert wide.verdict == "inconclusive"
    near_the_end = statistics.check_published(means.mean() + 0.9 * reach, values, samples=[16], margin=0.5 * reach)
    assert near_the_end.verdict == "inconclusive"  # the other end of the interval is far from it


def test_one_seed_cannot_contradict_a_published_number():
    values = [cell(np.random.default_rng(20), seeds=1, problems=500)]
    found = statistics.check_published(values[0].mean() + 0.2, values, samples=[8])
    assert found.verdict == "inconclusive"
    assert statistics.ONE_SEED in found.reason
    reach = stats.norm.ppf(0.975) * np.sqrt(2) * statistics.sampling_error(values[0] * 8, 8)  # both have the error
    assert (found.low, found.high) == pytest.approx((values[0].mean() - reach, values[0].mean() + reach))
    near = statistics.check_published(values[0].mean(), values, samples=[8])
    assert (near.verdict, near.reason) == ("reproduced", statistics.ONE_SEED)
    assert statistics.check_published_seeds(0.3, [0.31]).verdict == "inconclusive"


def test_t_half_width_matches_scipy_and_is_unknown_for_one():
    values = np.array([0.1, 0.4, 0.2])
    expected = stats.t.interval(0.95, 2, loc=0, scale=stats.sem(values))[1]
    found = statistics.t_half_width([values.std(ddof=1), 1.0], [3, 1])
    assert found == pytest.approx([expected, np.nan], nan_ok=True)


def test_where_seeds_dominate_the_interval_is_students_t_over_seeds():
    """Problems alike, seeds far apart: two degrees of freedom decide, as in the t interval of the seed scores."""
    rng = np.random.default_rng(21)
    values = np.array([[0.4], [0.5], [0.6]]) + rng.normal(0, 0.01, (3, 400))
    found = statistics.estimate([values])
    expected = stats.t.ppf(0.975, 2) * stats.sem(values.mean(axis=1))
    assert found.error * stats.t.ppf(0.975, 2) == pytest.approx(expected, rel=0.02)
    spread = found.value * (1 - found.value)
    n, t = spread / found.error**2, expected / found.error
    assert (found.high - found.low) / 2 == pytest.approx(
        t / (1 + t * t / n) * np.sqrt(spread / n + t * t / (4 * n * n)), rel=1e-6
    )
