//! Calendars: named sets of days, for example the working days of a company.
//!
//! Filters of schedules refer to calendars by name. The `timetable` crate computes the days, including those of
//! built-in calendars; [`crate::validate`] checks names and limits.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::DEFAULT;
use crate::time::Timestamp;
use crate::timing::{DateRange, Weekday};

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A calendar: a named set of days, to which schedules in the same namespace refer.
///
/// The steps are applied in order. For each day, the last step that contains the day decides; a day that no step
/// contains is not in the calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarSpec {
    /// Name of the calendar, unique in its namespace. 1 to 63 letters, digits, `-`, `_` or `.`, starting with a
    /// letter or digit. The prefix `belfry.` is reserved for built-in calendars.
    pub name: String,
    /// Namespace (tenant) of the calendar [default: `default`].
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Owner of the calendar: the person or team responsible for it, at most 128 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Labels of the calendar, for filtering and grouping; at most 64. Syntax: that of the labels of a job.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Description of the calendar, at most 1,000 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Steps that include or exclude days, at most 1,000, applied in order: a later step overrides earlier ones.
    pub steps: Vec<CalendarStep>,
    /// Last day for which the calendar is complete. A schedule that needs later days gets a warning [default:
    /// unlimited].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
}

/// One step of a calendar: adds days to the set or removes days from it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarStep {
    /// Adds these days to the calendar.
    Include(Days),
    /// Removes these days from the calendar.
    Exclude(Days),
}

/// A set of days in a step of a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Days {
    /// Every day.
    All {},
    /// Days of the week, in every week.
    Weekdays(Vec<Weekday>),
    /// Single days and ranges of days.
    Dates(Vec<DateRange>),
    /// Days of every year, as `MM-DD`. `02-29` exists only in leap years.
    Yearly(Vec<String>),
    /// All days of another calendar in the same namespace, or of a built-in calendar: `belfry.cn-holidays` or
    /// `belfry.cn-workdays`.
    Calendar(String),
}

/// A stored calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalendarRecord {
    /// Spec of the calendar.
    pub spec: CalendarSpec,
    /// Version of the calendar; increases with every change and is the value of the ETag.
    pub version: u64,
    /// Time at which the calendar was created.
    pub created_at: Timestamp,
    /// Time of the last change.
    pub updated_at: Timestamp,
}
