//! Descriptions in English.
//!
//! The order is: time of day, days, time zone, filters, exclusions, then roll, start, end and clock changes. The text
//! is built from the shapes of [`super::shape`], which the Chinese descriptions share.
//!
//! A change here must keep the texts of different timings different; the tests in `super::tests` compare them.

use model::Duration;
use model::timing::{
    CalendarRule, CalendarUnit, Cron, DateRange, Dst, Every, Filter, Fold, Gap, RollTo, Rule, Timing,
    Weekday, Window,
};

use super::shape::{
    DayFields, Part, Shape, TimeOfDay, clock, day_fields, field_shape, time_of_day, values, years,
};
use super::{passes_midnight, shown};
use crate::cron::{Field, FieldText, Hashed, Item, Text, parse_for_description};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// From Monday, which is 1.
const WEEKDAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const FIXED: &str = "derived from the schedule's name";

pub(super) fn describe(timing: &Timing) -> String {
    let rules: Vec<String> = timing.rules.iter().map(rule).collect();
    let mut text = if rules.is_empty() { "On demand only".to_owned() } else { rules.join("; and ") };
    text += &format!(", in {}", shown(&timing.zone));
    text.extend(timing.only.iter().map(|f| format!("; only {}", filter(f))));
    text.extend(timing.exclude.iter().map(|f| format!("; except {}", filter(f))));
    if let Some(roll) = &timing.roll {
        let to = match roll.to {
            RollTo::Next => "next",
            RollTo::Previous => "previous",
        };
        text +=
            &format!("; days not in calendar {} move to the {to} day in the calendar", shown(&roll.calendar));
    }
    if let Some(start) = timing.start {
        text += &format!("; not before {start}");
    }
    if let Some(end) = timing.end {
        text += &format!("; not after {end}");
    }
    text += &dst(timing.dst);
    text.push('.');
    capitalized(&text)
}

fn capitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

fn dst(dst: Dst) -> String {
    let mut text = String::new();
    text += match dst.gap {
        None => "",
        Some(Gap::Skip) => "; times skipped by a clock change do not fire",
        Some(Gap::Shift) => "; times skipped by a clock change fire at the end of the gap",
    };
    text += match dst.overlap {
        None => "",
        Some(Fold::First) => "; times repeated by a clock change fire only the first time",
        Some(Fold::Both) => "; times repeated by a clock change fire both times",
    };
    text
}

fn rule(rule: &Rule) -> String {
    match rule {
        Rule::Cron(c) => cron(c),
        Rule::Every(every) => rate(every),
        Rule::After(delay) => format!("{} after the end of the previous run", duration(*delay)),
        Rule::At(text) => format!("once at {}", shown(text.trim()).replacen('T', " ", 1)),
        Rule::Calendar(c) => calendar_rule(c),
        _ => "by a rule that this version does not support".to_owned(),
    }
}

fn rate(every: &Every) -> String {
    let mut text = match every.period.as_millis() {
        1_000 => "every second".to_owned(),
        60_000 => "every minute".to_owned(),
        3_600_000 => "every hour".to_owned(),
        _ => format!("every {}", duration(every.period)),
    };
    if every.phase != Duration::ZERO {
        text += &format!(", offset by {}", duration(every.phase));
    }
    text
}

/// A day is written as 24 hours, because calendar days may be shorter or longer.
fn duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let units = [("hour", 3_600_000), ("minute", 60_000), ("second", 1_000), ("millisecond", 1)];
    let mut parts = Vec::new();
    for (unit, millis) in units {
        let n = rest / millis;
        rest %= millis;
        if n > 0 {
            parts.push(format!("{n} {unit}{}", if n == 1 { "" } else { "s" }));
        }
    }
    if parts.is_empty() { "0 seconds".to_owned() } else { joined(&parts) }
}

fn filter(filter: &Filter) -> String {
    match filter {
        Filter::Calendar(name) => format!("on days of calendar {}", shown(name)),
        Filter::Weekdays(days) => format!("on {}", weekdays(days, "and")),
        Filter::Window(w) => window(w),
        Filter::Dates(dates) => format!("on {}", joined(&dates.iter().map(date_range).collect::<Vec<_>>())),
        Filter::Cron(c) => format!("at the times of: {}", cron(c)),
        _ => "by a filter that this version does not support".to_owned(),
    }
}

fn window(window: &Window) -> String {
    let mut text = format!("from {} until {}", shown(&window.from), shown(&window.until));
    if passes_midnight(window) {
        text += " of the next day";
    }
    if !window.weekdays.is_empty() {
        text += &format!(", starting on {}", weekdays(&window.weekdays, "or"));
    }
    text
}

fn date_range(range: &DateRange) -> String {
    if range.first == range.last {
        range.first.to_string()
    } else {
        format!("{} to {}", range.first, range.last)
    }
}

fn weekdays(days: &[Weekday], and: &str) -> String {
    let mut numbers: Vec<u16> = days.iter().map(|day| *day as u16 + 1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    match super::shape::shape(&numbers, 1, 7) {
        Some(Shape::All) => "any day of the week".to_owned(),
        Some(Shape::Range(first, last)) => format!("{} through {}", weekday(first), weekday(last)),
        _ => joined_with(&numbers.iter().map(|n| weekday(*n)).collect::<Vec<_>>(), and),
    }
}

fn calendar_rule(rule: &CalendarRule) -> String {
    let unit = match rule.unit {
        CalendarUnit::Days => "day",
        CalendarUnit::Weeks => "week",
        CalendarUnit::Months => "month",
        CalendarUnit::Years => "year",
    };
    let times = if rule.times.is_empty() {
        "00:00".to_owned()
    } else {
        joined(&rule.times.iter().map(|time| shown(time)).collect::<Vec<_>>())
    };
    let mut text = format!("at {times}");
    text += &match rule.every {
        1 => format!(" every {unit}"),
        n => format!(" every {n} {unit}s"),
    };
    if !rule.months.is_empty() {
        let names: Vec<_> = rule.months.iter().map(|m| month(u16::try_from(*m).unwrap_or(0))).collect();
        text += &format!(" in {}", joined(&names));
    } else if rule.unit == CalendarUnit::Years {
        text += &format!(" in {}", month(anchor(rule).month().unsigned_abs().into()));
    }
    text += &calendar_days(rule);
    match rule.from {
        Some(from) => text += &format!(", starting on {from}"),
        None if rule.every > 1 => text += &format!(", counted from {}", anchor(rule)),
        None => {}
    }
    text
}

/// Returns the day from which days, weeks, months or years are counted.
pub(super) fn anchor(rule: &CalendarRule) -> jiff::civil::Date {
    rule.from.unwrap_or(jiff::civil::date(2000, 1, if rule.unit == CalendarUnit::Weeks { 3 } else { 1 }))
}

fn calendar_days(rule: &CalendarRule) -> String {
    let anchor = anchor(rule);
    let named = |and| weekdays(&rule.weekdays, and);
    match rule.unit {
        CalendarUnit::Days if rule.weekdays.is_empty() => String::new(),
        CalendarUnit::Days => format!(", if it is {}", named("or")),
        CalendarUnit::Weeks if rule.weekdays.is_empty() => {
            format!(" on {}", weekday(anchor.weekday().to_monday_one_offset().unsigned_abs().into()))
        }
        CalendarUnit::Weeks => format!(" on {}", named("and")),
        CalendarUnit::Months | CalendarUnit::Years => {
            let mut text = String::new();
            if rule.days.is_empty() && rule.weekdays.is_empty() {
                text += &format!(" on day {}", anchor.day());
            } else if !rule.days.is_empty() {
                let days: Vec<String> = rule.days.iter().map(|day| day_or_from_end(*day)).collect();
                text += &format!(" on {}", joined(&days));
            }
            match (rule.weekdays.is_empty(), rule.days.is_empty()) {
                (true, _) => {}
                (false, true) => text += &format!(" on {}", nth_weekdays(rule, &named("and"), "every ")),
                (false, false) => text += &format!(", if it is {}", nth_weekdays(rule, &named("or"), "")),
            }
            text
        }
    }
}

fn nth_weekdays(rule: &CalendarRule, named: &str, every: &str) -> String {
    if rule.nth.is_empty() {
        return format!("{every}{named}");
    }
    let nth: Vec<String> = rule
        .nth
        .iter()
        .map(|n| match *n {
            -1 => "last".to_owned(),
            n if n < 0 => format!("{}-to-last", ordinal(n.unsigned_abs().into())),
            n => ordinal(n.unsigned_abs().into()),
        })
        .collect();
    format!("the {} {named} of the month", joined(&nth))
}

fn day_or_from_end(day: i8) -> String {
    match day {
        -1 => "the last day".to_owned(),
        day if day < 0 => format!("the {}-to-last day", ordinal(day.unsigned_abs().into())),
        day => format!("day {day}"),
    }
}

fn cron(cron: &Cron) -> String {
    match parse_for_description(cron) {
        Ok(Text::Every(period)) => rate(&Every { period, phase: Duration::ZERO }),
        Ok(Text::Fields(fields)) => fields_text(&fields),
        Err(_) => format!("by the invalid cron expression `{}`", shown(&cron.expression)),
    }
}

fn fields_text(fields: &[FieldText; 7]) -> String {
    let time = time_of_day(fields);
    let all_day = matches!(&time, TimeOfDay::Fields { hours, .. } if hours.is_all());
    let mut text = time_text(&time);
    text += &days_text(fields, all_day);
    let years: Vec<String> = years(fields)
        .into_iter()
        .map(|(first, last, step)| match step {
            _ if first == last => first.to_string(),
            1 => format!("{first} through {last}"),
            _ => format!("every {} year from {first} to {last}", ordinal(step)),
        })
        .collect();
    if !years.is_empty() {
        text += &format!(", in {}", joined(&years));
    }
    text
}

fn time_text(time: &TimeOfDay) -> String {
    let (seconds, minutes, hours) = match time {
        TimeOfDay::Times(times) => {
            return format!("at {}", joined(&times.iter().map(|time| clock(*time)).collect::<Vec<_>>()));
        }
        TimeOfDay::Fields { seconds, minutes, hours } => (seconds, minutes, hours),
    };
    if let (Some(second), Some(minute)) = (seconds.one(), minutes.one())
        && let Some(text) = hourly(hours, minute, second)
    {
        return text;
    }
    let mut text = String::new();
    if seconds.is_one(0) {
        text += &leading(minutes, "minute", hours.is_all() && !starts_with_every(minutes), "hour");
    } else {
        text += &leading(seconds, "second", minutes.is_all() && !starts_with_every(seconds), "minute");
        if !minutes.is_all() {
            text += &format!(" of {}", part(minutes, "minute"));
            if hours.is_all() {
                text += " of every hour";
            }
        }
    }
    text + &in_hours(hours)
}

/// Describes one minute of several hours as times of day.
fn hourly(hours: &Part, minute: u16, second: u16) -> Option<String> {
    if !hours.hashed.is_empty() {
        return None;
    }
    let at = |hour| clock([hour, minute, second]);
    match hours.shape.as_ref()? {
        Shape::Range(first, last) => Some(format!("every hour from {} to {}", at(*first), at(*last))),
        Shape::Steps { first, last, step, .. } => {
            Some(format!("every {step} hours from {} to {}", at(*first), at(*last)))
        }
        Shape::List(list) => Some(format!("at {}", joined(&list.iter().map(|h| at(*h)).collect::<Vec<_>>()))),
        Shape::All | Shape::One(_) => None,
    }
}

fn starts_with_every(part: &Part) -> bool {
    part.hashed.is_empty() && matches!(part.shape, Some(Shape::All | Shape::Steps { even: true, .. }))
}

/// Describes the finest field, which starts the sentence.
fn leading(part: &Part, unit: &str, of_every: bool, larger: &str) -> String {
    let mut text = match &part.shape {
        Some(Shape::All) => format!("every {unit}"),
        Some(Shape::Steps { first, step, even: true, .. }) if part.hashed.is_empty() => {
            let begin = if *first == 0 { String::new() } else { format!(", starting at {unit} {first}") };
            format!("every {step} {unit}s{begin}")
        }
        _ => format!("at {}", self::part(part, unit)),
    };
    if of_every {
        text += &format!(" of every {larger}");
    }
    text
}

/// Describes the values of a unit as a noun.
fn part(part: &Part, unit: &str) -> String {
    let mut texts = Vec::new();
    texts.extend(part.shape.as_ref().map(|shape| values_text(shape, unit)));
    texts.extend(part.hashed.iter().map(|hashed| hashed_text(*hashed, unit, |value| value.to_string())));
    joined(&texts)
}

fn values_text(shape: &Shape, unit: &str) -> String {
    match shape {
        Shape::All => format!("every {unit}"),
        Shape::One(value) => format!("{unit} {value}"),
        Shape::List(list) => format!("{unit}s {}", joined(list)),
        Shape::Range(first, last) => format!("{unit}s {first} to {last}"),
        Shape::Steps { first, last, step, .. } => {
            format!("every {} {unit} from {first} to {last}", ordinal(*step))
        }
    }
}

fn hashed_text(hashed: Hashed, unit: &str, value: impl Fn(u16) -> String) -> String {
    let article = if unit == "hour" { "an" } else { "a" };
    let (first, last) = (value(hashed.first), value(hashed.last));
    match hashed.step {
        None => format!("{article} {unit} from {first} to {last} ({FIXED})"),
        Some(step) => format!("every {} {unit} from {first} to {last} (the first {FIXED})", ordinal(step)),
    }
}

fn in_hours(hours: &Part) -> String {
    let hour = |hour: &u16| format!("{hour:02}:00");
    match &hours.shape {
        Some(Shape::All) => String::new(),
        Some(Shape::One(only)) if hours.hashed.is_empty() => {
            format!(" between {only:02}:00 and {only:02}:59")
        }
        Some(Shape::Range(first, last)) if hours.hashed.is_empty() => {
            format!(" between {} and {last:02}:59", hour(first))
        }
        _ => format!(" in {}", part(hours, "hour")),
    }
}

fn days_text(fields: &[FieldText; 7], all_day: bool) -> String {
    let (months, open_months) = months_text(&fields[Field::Month as usize]);
    let of_months = if open_months { "of the month".to_owned() } else { format!("of {months}") };
    let in_months = if open_months { String::new() } else { format!(" in {months}") };
    let of_month = || month_days_text(&fields[Field::DayOfMonth as usize]);
    let of_week = |and| week_days_text(&fields[Field::DayOfWeek as usize], and);
    match day_fields(fields) {
        DayFields::Every if all_day => in_months,
        DayFields::Every => format!(" every day{in_months}"),
        DayFields::OfMonth => format!(" on {} {of_months}", of_month()),
        DayFields::OfWeek => format!(" on {}{in_months}", of_week("and")),
        DayFields::Both => format!(" on {} {of_months}, if it is also {}", of_month(), of_week("or")),
        DayFields::Either => {
            format!(" on {} {of_months}, and also on {}{in_months}", of_month(), of_week("and"))
        }
    }
}

fn months_text(text: &FieldText) -> (String, bool) {
    let mut texts = Vec::new();
    match field_shape(text, Field::Month) {
        Some(Shape::All) => return (String::new(), true),
        Some(Shape::Range(first, last)) => texts.push(format!("{} through {}", month(first), month(last))),
        _ => texts.extend(values(text, Field::Month).into_iter().map(month)),
    }
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "month", month)));
    (joined(&texts), false)
}

fn month_days_text(text: &FieldText) -> String {
    let mut texts = Vec::new();
    texts.extend(field_shape(text, Field::DayOfMonth).map(|shape| values_text(&shape, "day")));
    texts.extend(text.special.iter().filter_map(|item| special_day(*item)));
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "day", |day| day.to_string())));
    joined(&texts)
}

/// Returns `None` for an item that is not a special day.
fn special_day(item: Item) -> Option<String> {
    Some(match item {
        Item::FromEnd(0) => "the last day".to_owned(),
        Item::FromEnd(1) => "the day before the last day".to_owned(),
        Item::FromEnd(n) => format!("the day {n} days before the last day"),
        Item::WorkdayNear(day) => format!("the weekday (Monday to Friday) nearest to day {day}"),
        Item::WorkdayNearEnd(0) => "the last weekday (Monday to Friday)".to_owned(),
        Item::WorkdayNearEnd(1) => {
            "the weekday (Monday to Friday) nearest to the day before the last day".to_owned()
        }
        Item::WorkdayNearEnd(n) => {
            format!("the weekday (Monday to Friday) nearest to the day {n} days before the last day")
        }
        Item::NthWeekday { weekday: day, nth } => {
            format!("the {} {} of the month", ordinal(nth), weekday(day))
        }
        Item::LastWeekday(day) => format!("the last {} of the month", weekday(day)),
        Item::Values(_) | Item::Years { .. } => return None,
    })
}

fn week_days_text(text: &FieldText, and: &str) -> String {
    let mut texts = Vec::new();
    match field_shape(text, Field::DayOfWeek) {
        Some(Shape::All) => texts.push("any day of the week".to_owned()),
        Some(Shape::Range(first, last)) => {
            texts.push(format!("{} through {}", weekday(first), weekday(last)))
        }
        _ => texts.extend(values(text, Field::DayOfWeek).into_iter().map(weekday)),
    }
    texts.extend(text.special.iter().filter_map(|item| special_day(*item)));
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "day", weekday)));
    joined_with(&texts, and)
}

fn month(number: u16) -> String {
    let name = usize::from(number).checked_sub(1).and_then(|index| MONTHS.get(index));
    name.map_or_else(|| format!("month {number}"), |name| (*name).to_owned())
}

/// Sunday is 0 as well as 7.
fn weekday(number: u16) -> String {
    WEEKDAYS[usize::from((number + 6) % 7)].to_owned()
}

fn ordinal(number: u16) -> String {
    let ending = match (number % 10, number % 100) {
        (_, 11..=13) => "th",
        (1, _) => "st",
        (2, _) => "nd",
        (3, _) => "rd",
        _ => "th",
    };
    format!("{number}{ending}")
}

/// Formats `a`, `a and b`, `a, b and c`.
fn joined<T: ToString>(items: &[T]) -> String {
    joined_with(items, "and")
}

fn joined_with<T: ToString>(items: &[T], and: &str) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    match texts.split_last() {
        None => "nothing".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} {and} {last}", others.join(", ")),
    }
}
