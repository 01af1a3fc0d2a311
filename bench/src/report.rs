//! Figures of a benchmark, round by round, and their table.

use serde::{Deserialize, Serialize};

/// Goal of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// The figure serves for comparison only.
    None,
}

/// A figure of one round, or the figures of several turns of one round.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) what: String,
    pub(crate) values: Vec<f64>,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
}

impl Figure {
    pub(crate) fn new(what: impl Into<String>, value: f64, unit: &'static str, goal: Goal) -> Self {
        Self::of_turns(what, vec![value], unit, goal)
    }

    pub(crate) fn of_turns(
        what: impl Into<String>,
        values: Vec<f64>,
        unit: &'static str,
        goal: Goal,
    ) -> Self {
        Self { what: what.into(), values, unit, goal }
    }
}

/// A figure over all rounds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Row {
    pub(crate) what: String,
    pub(crate) unit: String,
    pub(crate) goal: Goal,
    /// One value per round, or per turn of a round, in order.
    pub(crate) rounds: Vec<f64>,
}

impl Row {
    fn sorted(&self) -> Vec<f64> {
        let mut values = self.rounds.clone();
        values.sort_by(f64::total_cmp);
        values
    }

    pub(crate) fn median(&self) -> f64 {
        let values = self.sorted();
        let middle = values.len() / 2;
        match values.len() % 2 {
            _ if values.is_empty() => f64::NAN,
            1 => values[middle],
            _ => f64::midpoint(values[middle - 1], values[middle]),
        }
    }

    pub(crate) fn lowest(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::NAN, f64::min)
    }

    pub(crate) fn highest(&self) -> f64 {
        self.rounds.iter().copied().fold(f64::NAN, f64::max)
    }

    /// Whether the median reaches the goal; `None` if there is no goal.
    pub(crate) fn reached(&self) -> Option<bool> {
        match self.goal {
            Goal::AtLeast(goal) => Some(self.median() >= goal),
            Goal::AtMost(goal) => Some(self.median() <= goal),
            Goal::None => None,
        }
    }

    pub(crate) fn goal(&self) -> String {
        match self.goal {
            Goal::AtLeast(goal) => format!("≥ {}", number(goal)),
            Goal::AtMost(goal) => format!("≤ {}", number(goal)),
            Goal::None => String::new(),
        }
    }
}

/// Adds the figures of a round to the rows of earlier rounds.
///
/// # Panics
/// If a round has other figures than the first one, which is a bug in the benchmark.
pub(crate) fn add(rows: &mut Vec<Row>, figures: Vec<Figure>) {
    if rows.is_empty() {
        let row = |figure: &Figure| Row {
            what: figure.what.clone(),
            unit: figure.unit.into(),
            goal: figure.goal,
            rounds: Vec::new(),
        };
        rows.extend(figures.iter().map(row));
    }
    assert_eq!(rows.len(), figures.len(), "every round has the same figures");
    for (row, figure) in rows.iter_mut().zip(figures) {
        row.rounds.extend(figure.values);
    }
}

/// Formats a number with its significant digits: `12,904`, `5.7`, `0.58`.
pub(crate) fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 || v.fract() == 0.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let plain = format!("{value:.digits$}");
    let (whole, rest) = plain.find('.').map_or((plain.as_str(), ""), |point| plain.split_at(point));
    let mut grouped = String::new();
    for (place, digit) in whole.chars().enumerate() {
        if place > 0 && (whole.len() - place) % 3 == 0 && whole.as_bytes()[place - 1].is_ascii_digit() {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped + rest
}

#[expect(clippy::print_stdout, reason = "the table is the result of a benchmark")]
pub(crate) fn print(name: &str, rows: &[Row]) {
    for row in rows {
        let verdict = match row.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        let spread = match row.rounds.len() {
            ..=1 => String::new(),
            _ => format!("{}–{}", number(row.lowest()), number(row.highest())),
        };
        println!(
            "{name:<18} {:<56} {:>10} {:<8} {spread:<16} {:<10} {verdict}",
            row.what,
            number(row.median()),
            row.unit,
            row.goal()
        );
    }
}

/// Returns the percentile of the sorted `values`, with `share` from 0 to 1.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the slice")]
    let index = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
    values[index - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_the_median_lowest_and_highest_of_its_rounds() {
        let mut rows = Vec::new();
        for value in [3.0, 1.0, 10.0, 2.0] {
            add(&mut rows, vec![Figure::new("x", value, "s", Goal::AtMost(2.0))]);
        }
        let row = &rows[0];
        assert_eq!((row.lowest(), row.median(), row.highest()), (1.0, 2.5, 10.0));
        assert_eq!(row.reached(), Some(false));
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        let written = [0.0, 0.578, 5.0, 5.72, 23.04, 50.0, 999.6, 12_904.2, 1_234_567.0].map(number);
        assert_eq!(written, ["0", "0.58", "5", "5.72", "23.0", "50", "1,000", "12,904", "1,234,567"]);
    }

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!(percentile(&values, 0.50), 100.0);
        assert_eq!(percentile(&values, 0.99), 198.0);
        assert_eq!(percentile(&values, 1.0), 200.0);
    }
}
