//! Compilation and validation of a calendar spec.
//!
//! [`DaySet::compile`] converts the steps to layers, starting with the last step, because a later step overrides the
//! earlier ones. Days that a later step has decided are left out of the layers below. Consecutive steps of dates become
//! one sorted list.
//!
//! The engine compiles a calendar when it is created, changed or loaded. All problems are reported at once.
//!
//! # Cost
//! O(n log n) in the dates of the spec.

use std::collections::BTreeSet;

use jiff::civil::Date;
use model::calendar::{CalendarSpec, CalendarStep, Days};
use model::limits;
use model::timing::{DateRange, Weekday};
use model::validate::Problem;

use super::days::{DaySet, Layer, Span, Yearly, yearly_bit};
use super::{Calendars, unknown_calendar};

impl DaySet {
    /// Compiles a calendar. `others` contains the calendars that it can refer to.
    ///
    /// # Errors
    /// Returns all problems: exceeded limits, invalid days, unknown calendars, reference cycles, and a calendar without
    /// an `include`.
    pub fn compile(spec: &CalendarSpec, others: &dyn Calendars) -> Result<Self, Vec<Problem>> {
        let mut problems = check_size(spec);
        if spec.name.starts_with(super::china::PREFIX) {
            problems.push(problem(
                "name",
                "names that begin with `belfry.` are reserved for built-in calendars".into(),
            ));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let days = Self::compile_steps(&spec.name, &spec.steps, others)?;
        let known_until = days.known_until.into_iter().chain(spec.known_until).min();
        Ok(Self { known_until, ..days })
    }

    pub(super) fn compile_steps(
        name: &str,
        steps: &[CalendarStep],
        others: &dyn Calendars,
    ) -> Result<Self, Vec<Problem>> {
        let mut layers = Layers::default();
        let mut problems = Vec::new();
        for (index, step) in steps.iter().enumerate().rev() {
            let (word, included, days) = parts(step);
            let path = format!("steps[{index}].{word}");
            if let Err(problem) = layers.add(name, included, days, &path, others) {
                problems.extend(problem);
            }
        }
        problems.reverse();
        let days = layers.finish(name);
        if days.cost > limits::CALENDAR_COST_MAX {
            problems.push(problem(
                "steps",
                format!(
                    "has {} layers, including those of the calendars that it refers to: expected at most {}",
                    days.cost,
                    limits::CALENDAR_COST_MAX
                ),
            ));
        }
        if days.depth > limits::CALENDAR_DEPTH_MAX {
            problems.push(problem(
                "steps",
                format!(
                    "the references between calendars are {} levels deep: expected at most {}",
                    days.depth,
                    limits::CALENDAR_DEPTH_MAX
                ),
            ));
        }
        if problems.is_empty() { Ok(days) } else { Err(problems) }
    }
}

/// Returns the calendars that a spec refers to, each with the index and the kind of its step.
pub(super) fn references(spec: &CalendarSpec) -> impl Iterator<Item = (usize, &'static str, &str)> {
    spec.steps.iter().enumerate().filter_map(|(index, step)| match parts(step) {
        (word, _, Days::Calendar(name)) => Some((index, word, name.as_str())),
        _ => None,
    })
}

fn parts(step: &CalendarStep) -> (&'static str, bool, &Days) {
    match step {
        CalendarStep::Include(days) => ("include", true, days),
        CalendarStep::Exclude(days) => ("exclude", false, days),
    }
}

pub(super) fn problem(path: impl Into<String>, message: String) -> Problem {
    Problem { path: path.into(), message }
}

fn check_size(spec: &CalendarSpec) -> Vec<Problem> {
    let mut problems = Vec::new();
    let steps = spec.steps.len();
    if steps > limits::CALENDAR_STEPS_MAX {
        problems.push(problem(
            "steps",
            format!("has {steps} steps: expected at most {}", limits::CALENDAR_STEPS_MAX),
        ));
    }
    let dates: usize = spec.steps.iter().map(|step| dates_of(parts(step).2)).sum();
    if dates > limits::CALENDAR_DATES_MAX {
        problems.push(problem(
            "steps",
            format!(
                "has {dates} dates: expected at most {}; write consecutive days as one range",
                limits::CALENDAR_DATES_MAX
            ),
        ));
    }
    if !spec.steps.iter().any(|step| parts(step).1) {
        problems.push(problem(
            "steps",
            "includes no day: expected at least one `include`, such as `include: {all: {}}`".into(),
        ));
    }
    problems
}

fn dates_of(days: &Days) -> usize {
    match days {
        Days::Dates(dates) => dates.len(),
        Days::Yearly(dates) => dates.len(),
        _ => 0,
    }
}

/// Builder of the layers, from the topmost layer to the lowest.
#[derive(Default)]
struct Layers {
    /// Finished layers, topmost first.
    done: Vec<Layer>,
    /// Dates of consecutive steps, topmost first; merged into one layer when another kind of step follows.
    dates: Vec<(DateRange, bool)>,
    /// Weekdays that an upper layer decides.
    weekdays_decided: u8,
    /// Days of the year that an upper layer decides.
    yearly_decided: [u64; 6],
    /// Calendars that an upper layer refers to.
    calendars: BTreeSet<String>,
    /// Whether a layer decides all days. The steps below are checked, but have no layer.
    closed: bool,
}

impl Layers {
    fn add(
        &mut self,
        own_name: &str,
        included: bool,
        days: &Days,
        path: &str,
        others: &dyn Calendars,
    ) -> Result<(), Vec<Problem>> {
        match days {
            Days::All {} => {
                self.push(Layer::All(included));
                self.closed = true;
            }
            Days::Weekdays(weekdays) => self.weekdays(weekdays, included, path)?,
            Days::Dates(dates) => self.add_dates(dates, included, path)?,
            Days::Yearly(texts) => self.yearly(texts, included, path)?,
            Days::Calendar(name) => self.calendar(own_name, name, included, path, others)?,
            _ => return Err(vec![problem(path, "is not supported by this version".into())]),
        }
        Ok(())
    }

    fn push(&mut self, layer: Layer) {
        self.flush_dates();
        if !self.closed {
            self.done.push(layer);
        }
    }

    fn weekdays(&mut self, weekdays: &[Weekday], included: bool, path: &str) -> Result<(), Vec<Problem>> {
        if weekdays.is_empty() {
            return Err(vec![problem(format!("{path}.weekdays"), "is empty: expected a weekday".into())]);
        }
        let said = weekdays.iter().fold(0, |bits, day| bits | 1 << *day as u8);
        let news = said & !self.weekdays_decided;
        self.weekdays_decided |= said;
        if news != 0 {
            self.push(Layer::Weekdays { decided: news, included: if included { news } else { 0 } });
        }
        Ok(())
    }

    fn add_dates(&mut self, dates: &[DateRange], included: bool, path: &str) -> Result<(), Vec<Problem>> {
        if dates.is_empty() {
            return Err(vec![problem(format!("{path}.dates"), "is empty: expected a date".into())]);
        }
        self.dates.extend(dates.iter().map(|range| (*range, included)));
        Ok(())
    }

    fn yearly(&mut self, texts: &[String], included: bool, path: &str) -> Result<(), Vec<Problem>> {
        let mut said = [0; 6];
        let mut problems = Vec::new();
        for (index, text) in texts.iter().enumerate() {
            match month_and_day(text) {
                Some((month, day)) => {
                    let (word, bit) = yearly_bit(month, day);
                    said[word] |= bit;
                }
                None => problems.push(problem(
                    format!("{path}.yearly[{index}]"),
                    format!(
                        "`{}` is not a day of the year: expected `MM-DD`, such as `12-24`",
                        text.chars().filter(|c| !c.is_control()).take(64).collect::<String>()
                    ),
                )),
            }
        }
        if texts.is_empty() {
            problems.push(problem(
                format!("{path}.yearly"),
                "is empty: expected a day of the year, such as `12-24`".into(),
            ));
        }
        if !problems.is_empty() {
            problems.reverse();
            return Err(problems);
        }
        let mut yearly = Yearly::default();
        for (word, said) in said.into_iter().enumerate() {
            yearly.decided[word] = said & !self.yearly_decided[word];
            yearly.included[word] = if included { yearly.decided[word] } else { 0 };
            self.yearly_decided[word] |= said;
        }
        if yearly.decided.iter().any(|word| *word != 0) {
            self.push(Layer::Yearly(Box::new(yearly)));
        }
        Ok(())
    }

    fn calendar(
        &mut self,
        own_name: &str,
        name: &str,
        included: bool,
        path: &str,
        others: &dyn Calendars,
    ) -> Result<(), Vec<Problem>> {
        let fail = |message| Err(vec![problem(format!("{path}.calendar"), message)]);
        if name == own_name {
            return fail(format!("`{name}` is the calendar itself: expected another calendar"));
        }
        let Some(days) = others.days(name) else { return fail(unknown_calendar(name, others)) };
        if let Some(way) = days.path_to(own_name) {
            return fail(format!("creates a reference cycle: {own_name} → {}", way.join(" → ")));
        }
        // The topmost reference decides all days of the calendar, so a lower one has no effect.
        if self.calendars.insert(name.to_owned()) {
            self.push(Layer::Calendar { days, included });
        }
        Ok(())
    }

    fn flush_dates(&mut self) {
        let dates = std::mem::take(&mut self.dates);
        if !dates.is_empty() && !self.closed {
            self.done.push(Layer::Dates(merge_ranges(&dates)));
        }
    }

    fn finish(mut self, name: &str) -> DaySet {
        self.flush_dates();
        let hull = self.done.iter().filter_map(Layer::bounds).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let named = || {
            self.done.iter().filter_map(|layer| match layer {
                Layer::Calendar { days, .. } => Some(days),
                _ => None,
            })
        };
        let known_until = named().filter_map(|days| days.known_until).min();
        let depth = 1 + named().map(|days| days.depth).max().unwrap_or(0);
        let cost = self.done.iter().map(Layer::cost).sum();
        DaySet { name: name.into(), layers: self.done.into(), hull, known_until, cost, depth }
    }
}

/// Parses `MM-DD`. Returns month and day, or `None` if not even a leap year has the day.
fn month_and_day(text: &str) -> Option<(i8, i8)> {
    let (month, day) = text.split_once('-')?;
    let two_digits = |part: &str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_digit());
    if !two_digits(month) || !two_digits(day) {
        return None;
    }
    let (month, day) = (month.parse().ok()?, day.parse().ok()?);
    Date::new(2000, month, day).ok().map(|_| (month, day))
}

/// Merges ranges that may overlap into a sorted list. For each day, the first range that contains it decides.
///
/// Sweeps over the days on which a range starts or has ended: O(n log n).
fn merge_ranges(ranges: &[(DateRange, bool)]) -> Box<[Span]> {
    let mut begins: Vec<usize> = (0..ranges.len()).collect();
    begins.sort_by_key(|&i| ranges[i].0.first);
    let mut turns: Vec<Date> = ranges
        .iter()
        .flat_map(|(range, _)| [Some(range.first), range.last.tomorrow().ok()])
        .flatten()
        .collect();
    turns.sort_unstable();
    turns.dedup();

    let mut spans: Vec<Span> = Vec::new();
    let mut open = BTreeSet::new();
    let mut begins = begins.into_iter().peekable();
    for (i, &first) in turns.iter().enumerate() {
        while let Some(begun) = begins.next_if(|&b| ranges[b].0.first <= first) {
            open.insert(begun);
        }
        while let Some(&top) = open.first().filter(|&&top| ranges[top].0.last < first) {
            open.remove(&top);
        }
        let Some(&top) = open.first() else { continue };
        let last = turns.get(i + 1).and_then(|next| next.yesterday().ok()).unwrap_or(Date::MAX);
        let included = ranges[top].1;
        match spans.last_mut() {
            Some(span) if span.included == included && span.last.tomorrow().is_ok_and(|d| d == first) => {
                span.last = last;
            }
            _ => spans.push(Span { first, last, included }),
        }
    }
    spans.into()
}
