//! One event of an iCalendar file, and the days that it covers.
//!
//! `super::import` collects the properties of each entry with [`Event::add`] and calls [`Event::days`]. An event that
//! cannot be interpreted exactly has no days and a reason.
//!
//! # Cost
//! Bounded by the `work` of the import, which all events share.

use std::collections::BTreeSet;

use jiff::ToSpan;
use jiff::civil::Date;
use model::timing::DateRange;

use super::Ignored;
use super::lines::Property;
use super::recur::{Recurrence, WorkLimitReached};
use super::value::{DateOrTime, DurationValue, last_day_before};

/// Entry with the properties that affect its days.
#[derive(Debug)]
pub(super) struct Event {
    /// Line of its `BEGIN`, from 1.
    pub(super) line: usize,
    /// Component name: `VEVENT`, `VTODO`, `VJOURNAL` or `VFREEBUSY`.
    pub(super) kind: String,
    properties: Vec<Property>,
}

/// Reason why an event has no days.
#[derive(Debug)]
pub(super) enum Refusal {
    /// Only this event is ignored.
    Reason(String),
    /// The import exceeds its limit of work.
    TooMuch,
}

impl From<String> for Refusal {
    fn from(reason: String) -> Self {
        Self::Reason(reason)
    }
}

impl From<WorkLimitReached> for Refusal {
    fn from(_: WorkLimitReached) -> Self {
        Self::TooMuch
    }
}

impl Event {
    pub(super) fn new(line: usize, kind: String) -> Self {
        Self { line, kind, properties: Vec::new() }
    }

    pub(super) fn add(&mut self, property: Property) {
        let bears = matches!(
            property.name.as_str(),
            "DTSTART"
                | "DTEND"
                | "DURATION"
                | "RRULE"
                | "RDATE"
                | "EXDATE"
                | "EXRULE"
                | "STATUS"
                | "SUMMARY"
                | "UID"
                | "RECURRENCE-ID"
        );
        if bears {
            self.properties.push(property);
        }
    }

    pub(super) fn ignored(&self, reason: String) -> Ignored {
        let summary = self.all("SUMMARY").next().map(Property::text).filter(|text| !text.is_empty());
        Ignored { line: self.line, summary, reason }
    }

    /// Returns the UID of a series or of a single event; `None` for a replaced instance of a series.
    pub(super) fn series(&self) -> Option<&str> {
        self.replaces().is_none().then(|| self.all("UID").next()).flatten().map(|uid| uid.value.as_str())
    }

    /// Returns the UID of the series and the RECURRENCE-ID of the instance that this event replaces, if any.
    pub(super) fn replaces(&self) -> Option<(&str, &Property)> {
        let instance = self.all("RECURRENCE-ID").next()?;
        Some((&self.all("UID").next()?.value, instance))
    }

    /// Returns the days in `range` that the event covers. `moved` contains the instances that other events replace.
    pub(super) fn days(
        &self,
        range: DateRange,
        moved: &[&Property],
        work: &mut usize,
    ) -> Result<Vec<DateRange>, Refusal> {
        if self.all("STATUS").any(|status| status.value.eq_ignore_ascii_case("CANCELLED")) {
            return Err(String::from("is cancelled").into());
        }
        if let Some(rule) = self.all("EXRULE").next() {
            return Err(format!("line {}: EXRULE is not supported: expected EXDATE", rule.line).into());
        }
        let start = self.one("DTSTART")?.ok_or("has no DTSTART".to_owned())?;
        let zone = start.parameter("TZID");
        let first = moment(start)?;
        let first_day = first.day(zone).map_err(|reason| at(start, reason))?;
        let extra_days = self.last_day(first, zone)?.duration_since(first_day).as_hours() / 24;

        let mut begins = BTreeSet::from([first_day]);
        let window = DateRange { first: range.first.saturating_sub(extra_days.days()), last: range.last };
        for rule in self.all("RRULE") {
            let recurrence =
                Recurrence::parse(&rule.value, |until| until.day(zone)).map_err(|reason| at(rule, reason))?;
            if !recurrence.includes(first_day) {
                return Err(at(rule, "does not include the first day of the event (DTSTART)".into()).into());
            }
            begins.extend(recurrence.days(first_day, window, work)?);
        }
        begins.extend(self.listed("RDATE", zone)?);
        for excluded in self.listed("EXDATE", zone)? {
            begins.remove(&excluded);
        }
        for instance in moved {
            if instance.parameter("RANGE").is_some() {
                return Err(at(instance, "has the parameter RANGE, which is not supported".into()).into());
            }
            let day = moment(instance)?.day(zone).map_err(|reason| at(instance, reason))?;
            begins.remove(&day);
        }
        Ok(begins.into_iter().filter_map(|begin| covered(begin, extra_days, range)).collect())
    }

    /// Returns whether the event recurs after `day`.
    pub(super) fn recurs_after(&self, day: Date) -> bool {
        let zone = self.one("DTSTART").ok().flatten().and_then(|start| start.parameter("TZID"));
        self.all("RRULE").any(|rule| {
            Recurrence::parse(&rule.value, |until| until.day(zone))
                .is_ok_and(|rule| rule.can_recur_after(day))
        })
    }

    /// Returns the last day of the first instance.
    fn last_day(&self, first: DateOrTime, zone: Option<&str>) -> Result<Date, String> {
        let (end, duration) = (self.one("DTEND")?, self.one("DURATION")?);
        match (end, duration) {
            (Some(end), Some(_)) => Err(at(end, "cannot be combined with DURATION".into())),
            (None, None) => first.day(zone),
            (None, Some(duration)) => {
                DurationValue::parse(&duration.value).and_then(|length| length.last_day(first)).ok_or_else(
                    || at(duration, "does not fit DTSTART: expected a duration such as `P1D`".into()),
                )
            }
            (Some(end), None) => match (first, moment(end)?) {
                (DateOrTime::Day(first), DateOrTime::Day(last)) if last > first => {
                    last.yesterday().map_err(|error| at(end, error.to_string()))
                }
                (DateOrTime::Local(_), DateOrTime::Local(_)) if end.parameter("TZID") != zone => {
                    Err(at(end, "has another time zone than DTSTART".into()))
                }
                (DateOrTime::Local(first), DateOrTime::Local(last)) if last >= first => {
                    Ok(last_day_before(first, last))
                }
                (DateOrTime::Day(_), DateOrTime::Day(_)) | (DateOrTime::Local(_), DateOrTime::Local(_)) => {
                    Err(at(end, "is not after DTSTART".into()))
                }
                _ => {
                    Err(at(end, "has a different type than DTSTART: expected two dates, or two times".into()))
                }
            },
        }
    }

    /// Returns the days of a property that lists days: RDATE or EXDATE.
    fn listed(&self, name: &str, zone: Option<&str>) -> Result<Vec<Date>, String> {
        let mut days = Vec::new();
        for property in self.all(name) {
            for text in property.value.split(',') {
                let day = DateOrTime::parse(text.trim()).and_then(|moment| moment.day(zone));
                days.push(day.map_err(|reason| at(property, reason))?);
            }
        }
        Ok(days)
    }

    fn all(&self, name: &str) -> impl Iterator<Item = &Property> {
        self.properties.iter().filter(move |property| property.name == name)
    }

    fn one(&self, name: &str) -> Result<Option<&Property>, String> {
        let mut all = self.all(name);
        let one = all.next();
        match all.next() {
            Some(second) => Err(at(second, "is repeated: expected it once".into())),
            None => Ok(one),
        }
    }
}

fn moment(property: &Property) -> Result<DateOrTime, String> {
    DateOrTime::parse(&property.value).map_err(|reason| at(property, reason))
}

fn at(property: &Property, reason: String) -> String {
    format!("line {}: {} {reason}", property.line, property.name)
}

fn covered(begin: Date, extra_days: i64, range: DateRange) -> Option<DateRange> {
    let last = begin.saturating_add(extra_days.days());
    let covered = DateRange { first: begin.max(range.first), last: last.min(range.last) };
    (covered.first <= covered.last).then_some(covered)
}
