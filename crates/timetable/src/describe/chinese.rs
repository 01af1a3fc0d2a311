//! Descriptions in Simplified Chinese.
//!
//! The order of dates is the Chinese one: from the year down to the second. Then come time zone, filters, exclusions,
//! roll, start, end and clock changes. The text is built from the shapes of [`super::shape`], which the English
//! descriptions share.
//!
//! Chinese text and digits or Latin letters are separated by a space: see [`after_chinese`] and [`before_chinese`].

use model::Duration;
use model::timing::{
    CalendarRule, CalendarUnit, Cron, DateRange, Dst, Every, Filter, Fold, Gap, RollTo, Rule, Timing,
    Weekday, Window,
};

use super::english::anchor;
use super::shape::{
    DayFields, Part, Shape, TimeOfDay, clock, day_fields, field_shape, shape, time_of_day, values, years,
};
use super::{passes_midnight, shown};
use crate::cron::{Field, FieldText, Hashed, Item, Text, parse_for_description};

/// From Monday, which is 1.
const WEEKDAYS: [&str; 7] = ["周一", "周二", "周三", "周四", "周五", "周六", "周日"];
const FIXED: &str = "由定时任务的名称决定";

pub(super) fn describe(timing: &Timing) -> String {
    let rules: Vec<String> = timing.rules.iter().map(rule).collect();
    let mut text = if rules.is_empty() {
        "仅手动触发".to_owned()
    } else {
        let rules: Vec<String> = rules.iter().map(|rule| after_chinese(rule)).collect();
        rules.join("；以及").trim_start().to_owned()
    };
    text += &format!("（{}）", shown(&timing.zone));
    text.extend(timing.only.iter().map(|f| format!("；仅限{}", after_chinese(&filter(f)))));
    text.extend(timing.exclude.iter().map(|f| format!("；{}除外", before_chinese(&filter(f)))));
    if let Some(roll) = &timing.roll {
        let to = match roll.to {
            RollTo::Next => "顺延到日历中的下一天",
            RollTo::Previous => "提前到日历中的上一天",
        };
        text += &format!("；日期不在日历 {} 中时，{to}", shown(&roll.calendar));
    }
    if let Some(start) = timing.start {
        text += &format!("；不早于 {start}");
    }
    if let Some(end) = timing.end {
        text += &format!("；不晚于 {end}");
    }
    text + &dst(timing.dst) + "。"
}

fn dst(dst: Dst) -> String {
    let mut text = String::new();
    text += match dst.gap {
        None => "",
        Some(Gap::Skip) => "；时钟拨快时被跳过的时间不触发",
        Some(Gap::Shift) => "；时钟拨快时被跳过的时间在拨快结束时触发",
    };
    text += match dst.overlap {
        None => "",
        Some(Fold::First) => "；时钟拨慢时重复的时间只在第一次触发",
        Some(Fold::Both) => "；时钟拨慢时重复的时间两次都触发",
    };
    text
}

fn rule(rule: &Rule) -> String {
    match rule {
        Rule::Cron(c) => cron(c),
        Rule::Every(every) => rate(every),
        Rule::After(delay) => format!("上次运行结束后 {}", duration(*delay)),
        Rule::At(text) => format!("仅一次：{}", shown(text.trim()).replacen('T', " ", 1)),
        Rule::Calendar(c) => calendar_rule(c),
        _ => "此版本不支持的规则".to_owned(),
    }
}

fn rate(every: &Every) -> String {
    let mut text = match every.period.as_millis() {
        1_000 => "每秒".to_owned(),
        60_000 => "每分钟".to_owned(),
        3_600_000 => "每小时".to_owned(),
        _ => format!("每 {}", duration(every.period)),
    };
    if every.phase != Duration::ZERO {
        text += &format!("，偏移 {}", duration(every.phase));
    }
    text
}

fn duration(duration: Duration) -> String {
    let mut rest = duration.as_millis();
    let units = [("小时", 3_600_000), ("分钟", 60_000), ("秒", 1_000), ("毫秒", 1)];
    let mut parts = Vec::new();
    for (unit, millis) in units {
        let n = rest / millis;
        rest %= millis;
        if n > 0 {
            parts.push(format!("{n} {unit}"));
        }
    }
    if parts.is_empty() { "0 秒".to_owned() } else { parts.join(" ") }
}

fn filter(filter: &Filter) -> String {
    match filter {
        Filter::Calendar(name) => format!("日历 {} 中的日子", shown(name)),
        Filter::Weekdays(days) => weekdays(days),
        Filter::Window(w) => window(w),
        Filter::Dates(dates) => joined(&dates.iter().map(date_range).collect::<Vec<_>>()),
        Filter::Cron(c) => format!("“{}”的时间", cron(c)),
        _ => "此版本不支持的条件".to_owned(),
    }
}

fn window(window: &Window) -> String {
    let next = if passes_midnight(window) { "次日 " } else { " " };
    let time = format!(" {} 至{next}{} 之前", shown(&window.from), shown(&window.until));
    match window.weekdays.as_slice() {
        [] => format!("每天{time}"),
        days => format!("{}{time}", weekdays(days)),
    }
}

fn date_range(range: &DateRange) -> String {
    if range.first == range.last {
        range.first.to_string()
    } else {
        format!("{} 至 {}", range.first, range.last)
    }
}

fn weekdays(days: &[Weekday]) -> String {
    let mut numbers: Vec<u16> = days.iter().map(|day| *day as u16 + 1).collect();
    numbers.sort_unstable();
    numbers.dedup();
    match shape(&numbers, 1, 7) {
        Some(Shape::All) => "一周中的每一天".to_owned(),
        Some(Shape::Range(first, last)) => format!("{}至{}", weekday(first), weekday(last)),
        _ => joined(&numbers.iter().map(|n| weekday(*n)).collect::<Vec<_>>()),
    }
}

fn calendar_rule(rule: &CalendarRule) -> String {
    let unit = match (rule.unit, rule.every) {
        (CalendarUnit::Days, _) => "天",
        (CalendarUnit::Weeks, _) => "周",
        (CalendarUnit::Months, 1) => "月",
        (CalendarUnit::Months, _) => "个月",
        (CalendarUnit::Years, _) => "年",
    };
    let mut text = match rule.every {
        1 => format!("每{unit}"),
        n => format!("每 {n} {unit}"),
    };
    if rule.unit == CalendarUnit::Years {
        let months = match rule.months.as_slice() {
            [] => vec![format!("{} 月", anchor(rule).month())],
            months => months.iter().map(|month| format!("{month} 月")).collect(),
        };
        text += &format!(" {}", joined(&months));
    }
    text += &calendar_days(rule);
    let times = if rule.times.is_empty() {
        "00:00".to_owned()
    } else {
        joined(&rule.times.iter().map(|time| shown(time)).collect::<Vec<_>>())
    };
    text += if text.ends_with('）') { "" } else { " " };
    text += &times;
    match rule.from {
        Some(from) => text += &format!("，从 {from} 起"),
        None if rule.every > 1 => text += &format!("，从 {} 起计算", anchor(rule)),
        None => {}
    }
    text
}

fn calendar_days(rule: &CalendarRule) -> String {
    let anchor = anchor(rule);
    let named = || weekdays(&rule.weekdays);
    let one_of_named = || named().replace('和', "或");
    // "每周" and "周一" make "每周一".
    let weekly = |days: &str| match days.strip_prefix('周').filter(|_| rule.every == 1) {
        Some(day) => day.to_owned(),
        None => format!("的{days}"),
    };
    match rule.unit {
        CalendarUnit::Days if rule.weekdays.is_empty() => String::new(),
        CalendarUnit::Days => format!("（须为{}）", one_of_named()),
        CalendarUnit::Weeks if rule.weekdays.is_empty() => {
            weekly(&weekday(anchor.weekday().to_monday_one_offset().unsigned_abs().into()))
        }
        CalendarUnit::Weeks => weekly(&named()),
        CalendarUnit::Months | CalendarUnit::Years => {
            let days: Vec<String> = if rule.days.is_empty() {
                vec![format!(" {} 日", anchor.day())]
            } else {
                rule.days.iter().map(|day| day_or_from_end(*day)).collect()
            };
            let one_month = match rule.unit {
                CalendarUnit::Months => rule.every == 1,
                _ => rule.months.len() <= 1,
            };
            let of = if one_month { "" } else { "的" };
            match (rule.weekdays.is_empty(), rule.days.is_empty()) {
                (true, _) => format!("{of}{}", joined(&days)),
                (false, true) if rule.nth.is_empty() => format!("的每个{}", named()),
                (false, true) => format!("的{}", nth_weekdays(rule, &named())),
                (false, false) if rule.nth.is_empty() => {
                    format!("{of}{}（须为{}）", joined(&days), one_of_named())
                }
                (false, false) => {
                    let nth = nth_weekdays(rule, &named()).replace('和', "或");
                    format!("{of}{}（须为当月{nth}）", joined(&days))
                }
            }
        }
    }
}

fn nth_weekdays(rule: &CalendarRule, named: &str) -> String {
    let nth: Vec<String> = rule
        .nth
        .iter()
        .map(|n| match *n {
            -1 => "最后一个".to_owned(),
            n if n < 0 => format!("倒数第 {} 个", n.unsigned_abs()),
            n => format!("第 {n} 个"),
        })
        .collect();
    format!("{}{named}", joined(&nth))
}

fn day_or_from_end(day: i8) -> String {
    match day {
        -1 => "最后一天".to_owned(),
        day if day < 0 => format!("倒数第 {} 天", day.unsigned_abs()),
        day => format!(" {day} 日"),
    }
}

fn cron(cron: &Cron) -> String {
    match parse_for_description(cron) {
        Ok(Text::Every(period)) => rate(&Every { period, phase: Duration::ZERO }),
        Ok(Text::Fields(fields)) => fields_text(&fields),
        Err(_) => format!("无效的 cron 表达式 `{}`", shown(&cron.expression)),
    }
}

fn fields_text(fields: &[FieldText; 7]) -> String {
    let years: Vec<String> = years(fields)
        .into_iter()
        .map(|(first, last, step)| match step {
            _ if first == last => format!("{first} 年"),
            1 => format!("{first} 至 {last} 年"),
            _ => format!("{first} 至 {last} 年每 {step} 年"),
        })
        .collect();
    let every_year = if months_text(&fields[Field::Month as usize]).is_some() { "每年 " } else { "" };
    let mut text = if years.is_empty() { every_year.to_owned() } else { format!("{} ", joined(&years)) };
    let time = time_of_day(fields);
    let all_day = matches!(&time, TimeOfDay::Fields { hours, .. } if hours.is_all());
    let days = days_text(fields, all_day);
    text += &days;
    let time = time_text(&time);
    match time.chars().next() {
        Some('每') if !days.is_empty() => text.push('，'),
        Some('0'..='9') if !days.is_empty() && !days.ends_with('）') => text.push(' '),
        _ => {}
    }
    text + &time
}

fn time_text(time: &TimeOfDay) -> String {
    let (seconds, minutes, hours) = match time {
        TimeOfDay::Times(times) => return joined(&times.iter().map(|time| clock(*time)).collect::<Vec<_>>()),
        TimeOfDay::Fields { seconds, minutes, hours } => (seconds, minutes, hours),
    };
    if let (Some(second), Some(minute)) = (seconds.one(), minutes.one())
        && let Some(text) = hourly(hours, minute, second)
    {
        return text;
    }
    let mut text = in_hours(hours);
    if seconds.is_one(0) {
        if !starts_with_every(minutes) && hours.is_all() {
            text += "每小时的";
        }
        text += &finest(minutes, "分钟");
    } else {
        if !minutes.is_all() {
            if hours.is_all() {
                text += "每小时的";
            }
            text += &format!("{}，", part(minutes, "分钟"));
        } else if !starts_with_every(seconds) {
            text += "每分钟的";
        }
        text += &finest(seconds, "秒");
    }
    text
}

/// Describes one minute of several hours as times of day.
fn hourly(hours: &Part, minute: u16, second: u16) -> Option<String> {
    if !hours.hashed.is_empty() {
        return None;
    }
    let at = |hour| clock([hour, minute, second]);
    match hours.shape.as_ref()? {
        Shape::Range(first, last) => Some(format!("{} 至 {} 每小时一次", at(*first), at(*last))),
        Shape::Steps { first, last, step, .. } => {
            Some(format!("{} 至 {} 每 {step} 小时一次", at(*first), at(*last)))
        }
        Shape::List(list) => Some(joined(&list.iter().map(|h| at(*h)).collect::<Vec<_>>())),
        Shape::All | Shape::One(_) => None,
    }
}

fn starts_with_every(part: &Part) -> bool {
    part.hashed.is_empty() && matches!(part.shape, Some(Shape::All | Shape::Steps { even: true, .. }))
}

/// Describes the finest field, which ends the sentence.
fn finest(part: &Part, unit: &str) -> String {
    match &part.shape {
        Some(Shape::All) => format!("每{unit}"),
        Some(Shape::Steps { first, step, even: true, .. }) if part.hashed.is_empty() => {
            let begin = if *first == 0 { String::new() } else { format!("，从第 {first} {unit}开始") };
            format!("每 {step} {unit}{begin}")
        }
        _ => self::part(part, unit),
    }
}

/// Describes the values of a unit as a noun.
fn part(part: &Part, unit: &str) -> String {
    let mut texts = Vec::new();
    texts.extend(part.shape.as_ref().map(|shape| values_text(shape, unit)));
    let hashed =
        part.hashed.iter().map(|hashed| hashed_text(*hashed, unit, |value| format!("第 {value} {unit}")));
    texts.extend(hashed);
    joined(&texts)
}

/// Describes hours as a noun.
fn hours_text(hours: &Part) -> String {
    let hour = |value: u16| format!("{value} 点");
    let mut texts = Vec::new();
    texts.extend(hours.shape.as_ref().map(|shape| match shape {
        Shape::All => "每小时".to_owned(),
        Shape::One(value) => hour(*value),
        Shape::List(list) => joined(&list.iter().map(|value| hour(*value)).collect::<Vec<_>>()),
        Shape::Range(first, last) => format!("{first} 点至 {last} 点"),
        Shape::Steps { first, last, step, .. } => format!("{first} 点至 {last} 点每 {step} 小时"),
    }));
    texts.extend(hours.hashed.iter().map(|hashed| hashed_text(*hashed, "小时", hour)));
    joined(&texts)
}

fn values_text(shape: &Shape, unit: &str) -> String {
    match shape {
        Shape::All => format!("每{unit}"),
        Shape::One(value) => format!("第 {value} {unit}"),
        Shape::List(list) => format!("第 {} {unit}", joined(list)),
        Shape::Range(first, last) => format!("第 {first} 至 {last} {unit}"),
        Shape::Steps { first, last, step, .. } => format!("第 {first} 至 {last} {unit}内每 {step} {unit}"),
    }
}

/// `unit` is the unit of the values, such as `分钟`.
fn hashed_text(hashed: Hashed, unit: &str, value: impl Fn(u16) -> String) -> String {
    let (first, last) = (value(hashed.first), value(hashed.last));
    match hashed.step {
        None => format!("{first}至{}中的某一{unit}（{FIXED}）", after_chinese(&last)),
        Some(step) => format!("{first}至{}内每 {step} {unit}（起点{FIXED}）", after_chinese(&last)),
    }
}

fn in_hours(hours: &Part) -> String {
    match &hours.shape {
        Some(Shape::All) => String::new(),
        Some(Shape::One(only)) if hours.hashed.is_empty() => format!("{only:02}:00 至 {only:02}:59 之间"),
        Some(Shape::Range(first, last)) if hours.hashed.is_empty() => {
            format!("{first:02}:00 至 {last:02}:59 之间")
        }
        _ => format!("{}的时段内，", hours_text(hours)),
    }
}

fn days_text(fields: &[FieldText; 7], all_day: bool) -> String {
    let months = months_text(&fields[Field::Month as usize]);
    let of_month = || match &months {
        Some(months) => {
            let days = month_days_text(&fields[Field::DayOfMonth as usize]);
            let of = if is_one_month(months) && days.starts_with(' ') { "" } else { "的" };
            format!("{months}{of}{days}")
        }
        None => format!("每月{}", month_days_text(&fields[Field::DayOfMonth as usize])),
    };
    let week_days = &fields[Field::DayOfWeek as usize];
    let of_week = || match &months {
        Some(months) => format!("{months}的{}", week_days_text(week_days, "每", "")),
        None => week_days_text(week_days, "每", "每月"),
    };
    match (day_fields(fields), &months) {
        (DayFields::Every, Some(months)) => format!("{months}的每天"),
        (DayFields::Every, None) if all_day => String::new(),
        (DayFields::Every, None) => "每天".to_owned(),
        (DayFields::OfMonth, _) => of_month(),
        (DayFields::OfWeek, _) => of_week(),
        (DayFields::Both, _) => {
            format!("{}（且须为{}）", of_month(), week_days_text(week_days, "", "当月"))
        }
        (DayFields::Either, _) => format!("{}，以及{}", of_month(), after_chinese(&of_week())),
    }
}

/// Whether a text of months is one month, such as `2 月`.
fn is_one_month(months: &str) -> bool {
    months.strip_suffix(" 月").is_some_and(|number| number.parse::<u16>().is_ok())
}

/// Returns `None` if all months match.
fn months_text(text: &FieldText) -> Option<String> {
    let month = |month: u16| format!("{month} 月");
    let mut texts = Vec::new();
    match field_shape(text, Field::Month) {
        Some(Shape::All) => return None,
        Some(Shape::Range(first, last)) => texts.push(format!("{first} 月至 {last} 月")),
        _ => texts.extend(values(text, Field::Month).into_iter().map(month)),
    }
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "个月", month)));
    Some(joined(&texts))
}

fn month_days_text(text: &FieldText) -> String {
    let mut texts = Vec::new();
    texts.extend(field_shape(text, Field::DayOfMonth).map(|shape| match shape {
        Shape::All => "每一天".to_owned(),
        Shape::One(day) => format!(" {day} 日"),
        Shape::List(days) => joined(&days.iter().map(|day| format!(" {day} 日")).collect::<Vec<_>>()),
        Shape::Range(first, last) => format!(" {first} 日至 {last} 日"),
        Shape::Steps { first, last, step, .. } => format!(" {first} 日至 {last} 日每 {step} 天"),
    }));
    texts.extend(text.special.iter().filter_map(|item| special_day(*item, "")));
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "天", |day| format!(" {day} 日"))));
    joined(&texts)
}

/// Returns `None` for an item that is not a special day.
fn special_day(item: Item, of_month: &str) -> Option<String> {
    Some(match item {
        Item::FromEnd(0) => "最后一天".to_owned(),
        Item::FromEnd(n) => format!("倒数第 {} 天", n + 1),
        Item::WorkdayNear(day) => format!("离 {day} 日最近的工作日（周一至周五）"),
        Item::WorkdayNearEnd(0) => "最后一个工作日（周一至周五）".to_owned(),
        Item::WorkdayNearEnd(n) => format!("离倒数第 {} 天最近的工作日（周一至周五）", n + 1),
        Item::NthWeekday { weekday: day, nth } => format!("{of_month}第 {nth} 个{}", weekday(day)),
        Item::LastWeekday(day) => format!("{of_month}最后一个{}", weekday(day)),
        Item::Values(_) | Item::Years { .. } => return None,
    })
}

/// `each` precedes plain weekdays, `of_month` precedes weekdays that are counted within the month.
fn week_days_text(text: &FieldText, each: &str, of_month: &str) -> String {
    let mut texts = Vec::new();
    match field_shape(text, Field::DayOfWeek) {
        Some(Shape::All) => texts.push("每一天".to_owned()),
        Some(Shape::Range(first, last)) => texts.push(format!("{each}{}至{}", weekday(first), weekday(last))),
        _ => {
            let days = values(text, Field::DayOfWeek).into_iter().enumerate();
            texts.extend(days.map(|(i, day)| format!("{}{}", if i == 0 { each } else { "" }, weekday(day))));
        }
    }
    texts.extend(text.special.iter().filter_map(|item| special_day(*item, of_month)));
    texts.extend(text.hashed.iter().map(|hashed| hashed_text(*hashed, "天", weekday)));
    let text = joined(&texts);
    if each.is_empty() { text.replace('和', "或") } else { text }
}

/// Sunday is 0 as well as 7.
fn weekday(number: u16) -> String {
    WEEKDAYS[usize::from((number + 6) % 7)].to_owned()
}

/// Formats `甲`, `甲和乙`, `甲、乙和丙`, with a space between `和` and digits or Latin letters.
fn joined<T: ToString>(items: &[T]) -> String {
    let texts: Vec<String> = items.iter().map(T::to_string).collect();
    match texts.split_last() {
        None => "无".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => {
            let others: Vec<&str> = others
                .iter()
                .enumerate()
                .map(|(i, other)| if i == 0 { other.as_str() } else { other.trim_start() })
                .collect();
            format!("{}和{}", before_chinese(&others.join("、")), after_chinese(last))
        }
    }
}

/// Adds a space in front of a text that starts with a digit or a Latin letter.
fn after_chinese(text: &str) -> String {
    let text = text.trim_start();
    if text.starts_with(|c: char| c.is_ascii_alphanumeric()) { format!(" {text}") } else { text.to_owned() }
}

/// Appends a space to a text that ends with a digit or a Latin letter.
fn before_chinese(text: &str) -> String {
    if text.ends_with(|c: char| c.is_ascii_alphanumeric()) { format!("{text} ") } else { text.to_owned() }
}
