//! Horizontal time axis in a time zone.

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{ToSpan as _, Zoned};
use model::{Duration, Timestamp};

/// Maximum number of ticks.
const TICKS_MAX: i64 = 13;

/// A time range on a horizontal line.
pub(super) struct Axis<'a> {
    from: Timestamp,
    until: Timestamp,
    pub(super) zone: &'a TimeZone,
    left: f64,
    right: f64,
}

/// A tick below the line.
pub(super) struct Tick {
    pub(super) x: f64,
    pub(super) label: String,
    /// Whether the tick is the start of a day.
    pub(super) is_day: bool,
}

impl<'a> Axis<'a> {
    pub(super) fn new(
        (from, until): (Timestamp, Timestamp),
        zone: &'a TimeZone,
        (left, right): (f64, f64),
    ) -> Self {
        Self { from, until, zone, left, right }
    }

    /// Returns the x position of a time; a time outside the range is at the nearest end.
    #[expect(clippy::cast_precision_loss, reason = "drawn to a tenth of a pixel")]
    pub(super) fn x(&self, at: Timestamp) -> f64 {
        let at = at.clamp(self.from, self.until);
        let micros = |until: Timestamp| (until.as_micros() - self.from.as_micros()) as f64;
        self.left + (self.right - self.left) * micros(at) / micros(self.until).max(1.0)
    }

    /// Returns the x positions of the start and the end of a bucket.
    pub(super) fn part(&self, from: Timestamp, width: Duration) -> (f64, f64) {
        (self.x(from), self.x(from + width))
    }

    /// Formats the local time, with the date if the range is longer than a day.
    pub(super) fn clock(&self, at: Timestamp) -> String {
        let at = local(self.zone, at);
        let is_long = self.until.since(self.from) > Duration::from_hours(24);
        at.strftime(if is_long { "%a %d %b %H:%M" } else { "%H:%M" }).to_string()
    }

    /// Returns ticks at hours or days, at readable distances.
    pub(super) fn ticks(&self) -> Vec<Tick> {
        const MINUTES: [i64; 9] = [1, 5, 15, 30, 60, 120, 180, 360, 720];
        let minutes = i64::try_from(self.until.since(self.from).as_millis() / 60_000).unwrap_or(i64::MAX);
        let step = MINUTES.into_iter().find(|step| minutes / step <= TICKS_MAX);
        let days = (minutes / 1_440 / TICKS_MAX + 1).max(1);
        let (first, last) = (local(self.zone, self.from).date(), local(self.zone, self.until).date());
        let mut ticks = Vec::new();
        let mut day = first;
        while day <= last {
            match step {
                Some(step) => {
                    let of_day = (0..1_440).step_by(usize::try_from(step).unwrap_or(60));
                    ticks.extend(of_day.filter_map(|minute| self.tick(day, minute)));
                }
                None => ticks.extend(self.tick(day, 0)),
            }
            let next = day.checked_add(if step.is_some() { 1 } else { days }.days());
            let Ok(next) = next else { break };
            day = next;
        }
        ticks
    }

    fn tick(&self, day: Date, minute: i64) -> Option<Tick> {
        let (hour, minute) = (i8::try_from(minute / 60).ok()?, i8::try_from(minute % 60).ok()?);
        let at = day.at(hour, minute, 0, 0).to_zoned(self.zone.clone()).ok()?;
        // Local times skipped by a clock change get no tick.
        if at.hour() != hour {
            return None;
        }
        let is_day = (hour, minute) == (0, 0);
        let instant = Timestamp::from(at.timestamp());
        let is_inside = self.from <= instant && instant < self.until;
        let label = at.strftime(if is_day { "%a %d %b" } else { "%H:%M" }).to_string();
        is_inside.then(|| Tick { x: self.x(instant), label, is_day })
    }
}

fn local(zone: &TimeZone, at: Timestamp) -> Zoned {
    jiff::Timestamp::from(at).to_zoned(zone.clone())
}

/// Formats a range; an equal date is shown once.
pub(super) fn span(zone: &TimeZone, from: Timestamp, until: Timestamp) -> String {
    let (from, until) = (local(zone, from), local(zone, until));
    let same_day = from.date() == until.date();
    // Within one minute, seconds are needed.
    let time = if same_day && from.strftime("%H:%M").to_string() == until.strftime("%H:%M").to_string() {
        "%H:%M:%S"
    } else {
        "%H:%M"
    };
    let day = format!("%a %d %b {time}");
    let until = until.strftime(if same_day { time } else { &day });
    format!("{} – {until}", from.strftime(&day))
}

/// Formats a duration in its two largest units.
pub(super) fn in_words(length: Duration) -> String {
    let secs = length.as_millis() / 1_000;
    let (days, hours, minutes, seconds) = (secs / 86_400, secs / 3_600 % 24, secs / 60 % 60, secs % 60);
    let units = [(days, "d"), (hours, "h"), (minutes, "m"), (seconds, "s")];
    let Some(first) = units.iter().position(|(count, _)| *count > 0) else { return "0s".to_owned() };
    let shown = units[first..].iter().take(2).filter(|(count, _)| *count > 0);
    shown.map(|(count, unit)| format!("{count}{unit}")).collect::<Vec<_>>().join(" ")
}
