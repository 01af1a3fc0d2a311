//! Figures, as a table for people and as JSON for programs.

use serde_json::json;

/// What a figure should be.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Goal {
    AtLeast(f64),
    AtMost(f64),
    /// It stands there to compare others with.
    None,
}

/// One measured number.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) what: String,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    pub(crate) goal: Goal,
}

impl Figure {
    pub(crate) fn new(
        name: &'static str,
        what: impl Into<String>,
        value: f64,
        unit: &'static str,
        goal: Goal,
    ) -> Self {
        Self { name, what: what.into(), value, unit, goal }
    }

    fn reached(&self) -> Option<bool> {
        match self.goal {
            Goal::AtLeast(goal) => Some(self.value >= goal),
            Goal::AtMost(goal) => Some(self.value <= goal),
            Goal::None => None,
        }
    }

    fn goal(&self) -> String {
        match self.goal {
            Goal::AtLeast(goal) => format!(">= {goal}"),
            Goal::AtMost(goal) => format!("<= {goal}"),
            Goal::None => String::new(),
        }
    }
}

#[expect(clippy::print_stdout, reason = "the table is what a benchmark is for")]
pub(crate) fn print(figures: &[Figure]) {
    for figure in figures {
        let verdict = match figure.reached() {
            Some(true) => "reached",
            Some(false) => "MISSED",
            None => "",
        };
        let digits = if figure.value < 100.0 { 2 } else { 0 };
        println!(
            "{:<14} {:<52} {:>12.digits$} {:<8} {:<10} {verdict}",
            figure.name,
            figure.what,
            figure.value,
            figure.unit,
            figure.goal()
        );
    }
}

pub(crate) fn json(figures: &[Figure]) -> String {
    let rows: Vec<_> = figures
        .iter()
        .map(|f| {
            json!({
                "name": f.name, "what": f.what, "value": f.value, "unit": f.unit,
                "goal": f.goal(), "reached": f.reached(),
            })
        })
        .collect();
    serde_json::to_string_pretty(&rows).expect("figures are plain values")
}

/// The value below which this share of the sorted `values` lies.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index within the slice")]
    let index = ((values.len() as f64 * share).ceil() as usize).clamp(1, values.len());
    values[index - 1]
}
