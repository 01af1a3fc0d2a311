//! Generator of random rules, each with an equivalent predicate.
//!
//! A [`DrawnRule`] has a timing and a test for its days and minutes, which is built together with the text
//! and does not parse it. So `oracle` can walk over all minutes of a period and compare them with the firings
//! of the timetable. `croner` uses only the expressions.
//!
//! - [`DrawnRule::vixie`], `quartz`, `calendar`: rules of each kind. `filtered`, `rolled`: filters and rolls
//!   on top.
//! - [`Draw`]: random numbers from a seed, so that a failed comparison can be repeated with its number.

use std::collections::BTreeSet;

use jiff::ToSpan as _;
use jiff::civil::{Date, Weekday};
use model::timing::{
    self, CalendarRule, CalendarUnit, Cron, Dialect, Dst, Filter, Fold, Gap, Roll, RollTo, Rule, Timing,
    Window,
};

/// Pseudo-random number generator: SplitMix64.
pub(crate) struct Draw(u64);

impl Draw {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn between(&mut self, first: i64, last: i64) -> i64 {
        first + self.below((last - first + 1) as u64) as i64
    }

    pub(crate) fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize]
    }
}

pub(crate) type DayTest = Box<dyn Fn(Date) -> bool>;

/// Random rule, with equivalent predicates.
pub(crate) struct DrawnRule {
    pub(crate) timing: Timing,
    pub(crate) day: DayTest,
    pub(crate) minutes: Vec<bool>,
    pub(crate) gap: Gap,
    pub(crate) overlap: Fold,
    /// Whether all filters allow a local date and minute.
    pub(crate) passes: Box<dyn Fn(Date, usize) -> bool>,
}

/// Returns the text of a random field without special items, and its values.
fn values(draw: &mut Draw, min: i64, max: i64, names: &[&str]) -> (String, BTreeSet<i64>) {
    let count = if draw.one_in(4) { draw.between(2, 3) } else { 1 };
    let (mut texts, mut all) = (Vec::new(), BTreeSet::new());
    for _ in 0..count {
        let a = draw.between(min, max);
        let b = draw.between(a, max);
        let step = draw.between(1, (max - min).min(20));
        let show =
            |value: i64| names.get((value - min) as usize).map_or(value.to_string(), |n| (*n).to_owned());
        let (text, values): (String, Vec<i64>) = match draw.below(7) {
            0 => (format!("*/{step}"), (min..=max).step_by(step as usize).collect()),
            1 => (format!("{}-{}", show(a), show(b)), (a..=b).collect()),
            2 => (format!("{a}-{b}/{step}"), (a..=b).step_by(step as usize).collect()),
            3 => (format!("{a}/{step}"), (a..=max).step_by(step as usize).collect()),
            _ => (show(a), vec![a]),
        };
        texts.push(text);
        all.extend(values);
    }
    (texts.join(","), all)
}

fn minute_or_hour(draw: &mut Draw, max: i64) -> (String, BTreeSet<i64>) {
    if draw.one_in(5) { ("*".into(), (0..=max).collect()) } else { values(draw, 0, max, &[]) }
}

fn sunday_zero(date: Date) -> i64 {
    date.weekday().to_sunday_zero_offset().into()
}

/// Returns the nearest day from Monday to Friday in the same month, by trying the neighbors.
fn nearest_workday(day: Date) -> Date {
    let works = |date: &Date| !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday);
    [0, -1, 1, -2, 2]
        .into_iter()
        .map(|n| day + n.days())
        .find(|date| works(date) && date.month() == day.month())
        .unwrap()
}

fn day_of_month(draw: &mut Draw) -> (String, DayTest) {
    let n = draw.between(1, 31) as i8;
    match draw.below(12) {
        0 => ("L".into(), Box::new(|date| date == date.last_of_month())),
        1 => {
            let before = n % 5;
            (
                format!("L-{before}"),
                Box::new(move |date| date + i64::from(before).days() == date.last_of_month()),
            )
        }
        2 => {
            let day = n;
            let test = move |date: Date| {
                day <= date.days_in_month()
                    && date == nearest_workday(date.first_of_month().with().day(day).build().unwrap())
            };
            (format!("{day}W"), Box::new(test))
        }
        3 => ("LW".into(), Box::new(|date| date == nearest_workday(date.last_of_month()))),
        4..7 => ("*".into(), Box::new(|_| true)),
        7 => ("?".into(), Box::new(|_| true)),
        _ => {
            let (text, days) = values(draw, 1, 31, &[]);
            (text, Box::new(move |date| days.contains(&i64::from(date.day()))))
        }
    }
}

const NAMES: [&str; 7] = ["SUN", "mon", "Tue", "wed", "THU", "fri", "SAT"];

/// Returns a random day-of-week field. `shift` is added to the numbers of crontab: 1 for Quartz.
fn day_of_week(draw: &mut Draw, shift: i64) -> (String, DayTest) {
    let day = draw.between(0, 6);
    match draw.below(10) {
        0 => {
            let nth = draw.between(1, 5);
            let test = move |date: Date| sunday_zero(date) == day && (i64::from(date.day()) + 6) / 7 == nth;
            (format!("{}#{nth}", day + shift), Box::new(test))
        }
        1 => {
            let test =
                move |date: Date| sunday_zero(date) == day && (date + 7.days()).month() != date.month();
            (format!("{}L", day + shift), Box::new(test))
        }
        2..5 => ("*".into(), Box::new(|_| true)),
        5 if shift == 0 => ("7".into(), Box::new(|date| date.weekday() == Weekday::Sunday)),
        5 => {
            // In Quartz, a range can wrap around after Saturday.
            let test = |date: Date| {
                matches!(
                    date.weekday(),
                    Weekday::Friday | Weekday::Saturday | Weekday::Sunday | Weekday::Monday
                )
            };
            ("6-2".into(), Box::new(test))
        }
        6 => (
            "MON-FRI".into(),
            Box::new(|date| !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)),
        ),
        _ => {
            // `a/n` and `*/n` go up to 7 in crontab, so this case generates lists instead.
            let days: BTreeSet<i64> = (0..draw.between(1, 4)).map(|_| draw.between(0, 6)).collect();
            let show = |day: &i64| {
                if shift == 0 && day % 2 == 0 {
                    NAMES[*day as usize].into()
                } else {
                    (day + shift).to_string()
                }
            };
            let text: Vec<String> = days.iter().map(show).collect();
            (text.join(","), Box::new(move |date| days.contains(&sunday_zero(date))))
        }
    }
}

fn dst(draw: &mut Draw) -> Dst {
    Dst {
        gap: draw.one_in(3).then(|| draw.pick(&[Gap::Skip, Gap::Shift])),
        overlap: draw.one_in(3).then(|| draw.pick(&[Fold::First, Fold::Both])),
    }
}

impl DrawnRule {
    fn new(draw: &mut Draw, rule: Rule, repeats: bool, day: DayTest, minutes: Vec<bool>) -> Self {
        let dst = dst(draw);
        let (gap, overlap) = if repeats { (Gap::Skip, Fold::Both) } else { (Gap::Shift, Fold::First) };
        Self {
            timing: Timing { rules: vec![rule], dst, ..Timing::default() },
            day,
            minutes,
            gap: dst.gap.unwrap_or(gap),
            overlap: dst.overlap.unwrap_or(overlap),
            passes: Box::new(|_, _| true),
        }
    }

    /// Returns a random crontab expression.
    pub(crate) fn vixie(draw: &mut Draw) -> Self {
        let (minute, minutes) = minute_or_hour(draw, 59);
        let (hour, hours) = minute_or_hour(draw, 23);
        let (dom, on_date) = day_of_month(draw);
        let (month, months) = months(draw);
        let (dow, on_weekday) = day_of_week(draw, 0);
        let both = [&dom, &dow].iter().any(|text| text.starts_with(['*', '?']));
        let day = move |date: Date| {
            let in_month = months.contains(&i64::from(date.month()));
            let (a, b) = (on_date(date), on_weekday(date));
            in_month && if both { a && b } else { a || b }
        };
        let repeats = minute.starts_with('*') || hour.starts_with('*');
        let rule = Rule::Cron(Cron::new(format!("{minute} {hour}  {dom} {month}\t{dow}")));
        Self::new(draw, rule, repeats, Box::new(day), times(&hours, &minutes))
    }

    /// Returns a random Quartz expression, sometimes with years.
    pub(crate) fn quartz(draw: &mut Draw) -> Self {
        let (minute, minutes) = minute_or_hour(draw, 59);
        let (hour, hours) = minute_or_hour(draw, 23);
        let (month, months) = months(draw);
        let ((mut dom, on_date), (mut dow, on_weekday)) = (day_of_month(draw), day_of_week(draw, 1));
        let by_date = draw.one_in(2);
        if by_date {
            dow = "?".into();
            dom = dom.replace('?', "*");
        } else {
            dom = "?".into();
        }
        let first_year = draw.between(1990, 2030);
        let (year, years) = match draw.below(4) {
            0 => (format!(" {first_year}-{}", first_year + 9), first_year..first_year + 10),
            1 => (" *".to_owned(), 0..10_000),
            _ => (String::new(), 0..10_000),
        };
        let day = move |date: Date| {
            let counts = months.contains(&i64::from(date.month())) && years.contains(&i64::from(date.year()));
            counts && if by_date { on_date(date) } else { on_weekday(date) }
        };
        let repeats = minute.starts_with('*') || hour.starts_with('*');
        let cron = Cron {
            expression: format!("0 {minute} {hour} {dom} {month} {dow}{year}"),
            dialect: Dialect::Quartz,
        };
        Self::new(draw, Rule::Cron(cron), repeats, Box::new(day), times(&hours, &minutes))
    }

    /// Returns a random calendar rule.
    pub(crate) fn calendar(draw: &mut Draw) -> Self {
        let unit =
            draw.pick(&[CalendarUnit::Days, CalendarUnit::Weeks, CalendarUnit::Months, CalendarUnit::Years]);
        let by_month = matches!(unit, CalendarUnit::Months | CalendarUnit::Years);
        let every = draw.between(1, if by_month { 4 } else { 10 });
        let from = draw.one_in(2).then(|| jiff::civil::date(1990, 1, 1) + draw.between(0, 9_000).days());
        let mut weekdays: Vec<timing::Weekday> = Vec::new();
        if draw.one_in(2) {
            weekdays = (0..draw.between(1, 3)).map(|_| draw.pick(&WEEKDAYS)).collect();
        }
        let nth: Vec<i8> = if by_month && !weekdays.is_empty() && draw.one_in(2) {
            vec![draw.pick(&[1, 2, 3, 4, 5, -1, -2, -5])]
        } else {
            vec![]
        };
        let days: Vec<i8> = if by_month && draw.one_in(2) {
            (0..3).map(|_| draw.pick(&[1, 5, 13, 28, 29, 30, 31, -1, -2, -30, -31])).collect()
        } else {
            vec![]
        };
        let months: Vec<i8> = if unit == CalendarUnit::Years && draw.one_in(2) {
            vec![2, draw.between(1, 12) as i8]
        } else {
            vec![]
        };
        let clock: Vec<usize> =
            if draw.one_in(4) { vec![] } else { (0..3).map(|_| draw.below(180) as usize).collect() };
        let show = |minute: &usize| format!("{:02}:{:02}", minute / 60, minute % 60);
        let rule = CalendarRule {
            every: every as u32,
            unit,
            months: months.clone(),
            days: days.clone(),
            weekdays: weekdays.clone(),
            nth: nth.clone(),
            times: clock.iter().map(show).collect(),
            from,
        };
        let mut minutes = vec![false; 1_440];
        for minute in &clock {
            minutes[*minute] = true;
        }
        minutes[0] |= clock.is_empty();
        let anchor = from.unwrap_or(match unit {
            CalendarUnit::Weeks => jiff::civil::date(2000, 1, 3),
            _ => jiff::civil::date(2000, 1, 1),
        });
        let day = move |date: Date| {
            let on_weekday = weekdays
                .iter()
                .any(|weekday| WEEKDAYS[date.weekday().to_monday_zero_offset() as usize] == *weekday);
            let monday = |date: Date| date - i64::from(date.weekday().to_monday_zero_offset()).days();
            let days_between = |a: Date, b: Date| i64::from(a.until(b).unwrap().get_days());
            let (forward, backward) =
                ((i64::from(date.day()) + 6) / 7, (i64::from(date.days_in_month() - date.day()) + 7) / 7);
            let nth_fits =
                nth.is_empty() || nth.iter().any(|n| i64::from(*n) == forward || i64::from(*n) == -backward);
            let from_end = date.day() - date.days_in_month() - 1;
            let day_fits = days.iter().any(|day| *day == date.day() || *day == from_end);
            let day_fits = match (days.is_empty(), weekdays.is_empty()) {
                (true, true) => date.day() == anchor.day(),
                (true, false) => on_weekday && nth_fits,
                (false, true) => day_fits,
                (false, false) => day_fits && on_weekday && nth_fits,
            };
            let months_between = (i64::from(date.year()) - i64::from(anchor.year())) * 12
                + i64::from(date.month())
                - i64::from(anchor.month());
            let month_fits = if months.is_empty() {
                date.month() == anchor.month()
            } else {
                months.contains(&date.month())
            };
            let in_cycle = match unit {
                CalendarUnit::Days => {
                    days_between(anchor, date) % every == 0 && (weekdays.is_empty() || on_weekday)
                }
                CalendarUnit::Weeks => {
                    days_between(monday(anchor), monday(date)) % (7 * every) == 0
                        && if weekdays.is_empty() { date.weekday() == anchor.weekday() } else { on_weekday }
                }
                CalendarUnit::Months => months_between % every == 0 && day_fits,
                CalendarUnit::Years => {
                    i64::from(date.year() - anchor.year()) % every == 0 && month_fits && day_fits
                }
            };
            in_cycle && from.is_none_or(|from| from <= date)
        };
        Self::new(draw, Rule::Calendar(rule), false, Box::new(day), minutes)
    }

    /// Returns the rule with random filters.
    pub(crate) fn filtered(mut self, draw: &mut Draw) -> Self {
        let mut tests: Vec<Box<dyn Fn(Date, usize) -> bool>> = Vec::new();
        for _ in 0..draw.between(1, 3) {
            let (filter, matches) = filter(draw);
            let passes = draw.one_in(2);
            if passes {
                self.timing.only.push(filter)
            } else {
                self.timing.exclude.push(filter)
            }
            tests.push(Box::new(move |date, minute| matches(date, minute) == passes));
        }
        self.passes = Box::new(move |date, minute| tests.iter().all(|test| test(date, minute)));
        self
    }

    /// Returns the rule with a roll to working days.
    pub(crate) fn rolled(mut self, draw: &mut Draw) -> Self {
        let to = draw.pick(&[RollTo::Next, RollTo::Previous]);
        self.timing.roll = Some(Roll { to, calendar: "workdays".into() });
        let inner = self.day;
        self.day = Box::new(move |date| {
            let step = if to == RollTo::Next { -1 } else { 1 };
            let off = (1..30).map(|n| date + (n * step).days()).take_while(|date| !is_workday(*date));
            is_workday(date) && (inner(date) || off.into_iter().any(&inner))
        });
        self
    }
}

/// Returns whether a day is from Monday to Friday, and not one of five holidays.
pub(crate) fn is_workday(date: Date) -> bool {
    let holiday = matches!((date.month(), date.day()), (1, 1) | (5, 1) | (12, 25) | (12, 26) | (12, 31));
    !holiday && !matches!(date.weekday(), Weekday::Saturday | Weekday::Sunday)
}

/// Returns a random filter, and a predicate for the local dates and minutes that it matches.
fn filter(draw: &mut Draw) -> (Filter, Box<dyn Fn(Date, usize) -> bool>) {
    match draw.below(5) {
        0 => {
            let days: Vec<_> = (0..4).map(|_| draw.pick(&WEEKDAYS)).collect();
            let test = days.clone();
            (
                Filter::Weekdays(days),
                Box::new(move |date, _| {
                    test.contains(&WEEKDAYS[date.weekday().to_monday_zero_offset() as usize])
                }),
            )
        }
        1 => (Filter::Calendar("workdays".into()), Box::new(|date, _| is_workday(date))),
        2 => {
            let ranges: Vec<timing::DateRange> = (0..40)
                .map(|n| {
                    let first = jiff::civil::date(1985, 1, 1) + (n * 400 + draw.between(0, 500)).days();
                    timing::DateRange { first, last: first + draw.between(0, 90).days() }
                })
                .collect();
            let test = ranges.clone();
            (
                Filter::Dates(ranges),
                Box::new(move |date, _| test.iter().any(|r| r.first <= date && date <= r.last)),
            )
        }
        3 => {
            let (from, until) = (draw.below(1_440) as usize, draw.below(1_440) as usize);
            let show = |minute: usize| format!("{:02}:{:02}", minute / 60, minute % 60);
            let weekdays: Vec<_> =
                if draw.one_in(2) { vec![] } else { (0..3).map(|_| draw.pick(&WEEKDAYS)).collect() };
            let window = Window { from: show(from), until: show(until), weekdays: weekdays.clone() };
            let begins = move |date: Date| {
                weekdays.is_empty()
                    || weekdays.contains(&WEEKDAYS[date.weekday().to_monday_zero_offset() as usize])
            };
            let test = move |date: Date, minute: usize| {
                if from < until {
                    return begins(date) && from <= minute && minute < until;
                }
                begins(date) && from <= minute || begins(date - 1.day()) && minute < until
            };
            (Filter::Window(window), Box::new(test))
        }
        _ => {
            let (hour, hours) = values(draw, 0, 23, &[]);
            let (dow, on_weekday) = day_of_week(draw, 0);
            let minutes = times(&hours, &(0..60).collect());
            (
                Filter::Cron(Cron::new(format!("* {hour} * * {dow}"))),
                Box::new(move |date, minute| minutes[minute] && on_weekday(date)),
            )
        }
    }
}

const WEEKDAYS: [timing::Weekday; 7] = [
    timing::Weekday::Monday,
    timing::Weekday::Tuesday,
    timing::Weekday::Wednesday,
    timing::Weekday::Thursday,
    timing::Weekday::Friday,
    timing::Weekday::Saturday,
    timing::Weekday::Sunday,
];

fn months(draw: &mut Draw) -> (String, BTreeSet<i64>) {
    const NAMES: [&str; 12] =
        ["jan", "FEB", "Mar", "apr", "MAY", "jun", "jul", "aug", "sep", "OCT", "nov", "dec"];
    if draw.one_in(3) { values(draw, 1, 12, &NAMES) } else { ("*".into(), (1..=12).collect()) }
}

fn times(hours: &BTreeSet<i64>, minutes: &BTreeSet<i64>) -> Vec<bool> {
    (0..1_440).map(|time| hours.contains(&(time / 60)) && minutes.contains(&(time % 60))).collect()
}
