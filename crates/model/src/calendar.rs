//! Calendars: named sets of days, such as the working days of a company.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::spec::DEFAULT;
use crate::time::Timestamp;
use crate::timing::{DateRange, Weekday};

fn default_namespace() -> String {
    DEFAULT.to_owned()
}

/// A named set of days that schedules of its namespace refer to.
///
/// A day belongs to the set if the last of its steps that speaks of the day includes it; a day that
/// no step speaks of does not belong to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CalendarSpec {
    /// Unique in its namespace. Names that begin with `belfry.` are those of built-in calendars.
    pub name: String,
    /// The tenant that it belongs to.
    #[serde(default = "default_namespace")]
    pub namespace: String,
    /// Who answers for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Free words to find it by.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// What it is, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// In order: later ones override earlier ones.
    pub steps: Vec<CalendarStep>,
    /// The last day that its steps are complete for; schedules that look beyond it are warned of. Unlimited where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = Date)]
    pub known_until: Option<jiff::civil::Date>,
}

/// One step of a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CalendarStep {
    /// These days belong to it.
    Include(Days),
    /// These do not.
    Exclude(Days),
}

/// A set of days.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Days {
    /// Every day.
    All {},
    /// These days of every week.
    Weekdays(Vec<Weekday>),
    /// These days.
    Dates(Vec<DateRange>),
    /// These days of every year, as `MM-DD`; `02-29` is in leap years only.
    Yearly(Vec<String>),
    /// The days of another calendar of the namespace, or of a built-in one: `belfry.cn-holidays`,
    /// `belfry.cn-workdays`.
    Calendar(String),
}

/// A calendar as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CalendarRecord {
    /// What it is.
    pub spec: CalendarSpec,
    /// Grows with every change; its ETag.
    pub version: u64,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it last changed.
    pub updated_at: Timestamp,
}
