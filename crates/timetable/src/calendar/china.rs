//! Built-in calendars: public holidays, make-up days and working days of mainland China.
//!
//! Each autumn, the General Office of the State Council publishes the public holidays of the next year, together with
//! the weekend days that are worked in exchange (make-up days): 《国务院办公厅关于…年部分节假日安排的通知》. The table
//! includes later notices that changed a year: 2015 (3 September, 70 years after the war), 2019 (Labour Day) and 2020
//! (Spring Festival, extended during the epidemic).
//!
//! Years outside the table have no holidays and no make-up days; their working days are Monday to Friday.
//! [`DaySet::known_until`] returns the last day of the table. To add a year, add a line to the table and its days to
//! `china.golden`.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use jiff::civil::{Date, date};
use model::calendar::{CalendarStep, Days};
use model::timing::{DateRange, Weekday};

use super::{BuiltinCalendars, DaySet};

/// Prefix of the names of built-in calendars; reserved for them.
pub(super) const PREFIX: &str = "belfry.";

const HOLIDAYS: &str = "belfry.cn-holidays";
const MAKEUP_DAYS: &str = "belfry.cn-makeup-days";
const WORKDAYS: &str = "belfry.cn-workdays";

/// Returns a built-in calendar, or `None` if the name is unknown:
///
/// - `belfry.cn-holidays`: public holidays of China, including the weekend days among them.
/// - `belfry.cn-makeup-days`: weekend days that are worked in exchange.
/// - `belfry.cn-workdays`: Monday to Friday without the holidays, and the make-up days.
pub fn builtin(name: &str) -> Option<Arc<DaySet>> {
    BUILTIN.get(name).cloned()
}

/// Returns the names of all built-in calendars, sorted.
pub fn builtin_names() -> impl Iterator<Item = &'static str> {
    [HOLIDAYS, MAKEUP_DAYS, WORKDAYS].into_iter()
}

static BUILTIN: LazyLock<BTreeMap<&'static str, Arc<DaySet>>> = LazyLock::new(|| {
    let holidays = Days::Dates(YEARS.iter().flat_map(Year::off).collect());
    let makeup_days = Days::Dates(YEARS.iter().flat_map(Year::work).collect());
    let monday_to_friday = Days::Weekdays(vec![
        Weekday::Monday,
        Weekday::Tuesday,
        Weekday::Wednesday,
        Weekday::Thursday,
        Weekday::Friday,
    ]);
    let workdays = vec![
        CalendarStep::Include(monday_to_friday),
        CalendarStep::Exclude(holidays.clone()),
        CalendarStep::Include(makeup_days.clone()),
    ];
    BTreeMap::from([
        (HOLIDAYS, built(HOLIDAYS, &[CalendarStep::Include(holidays)])),
        (MAKEUP_DAYS, built(MAKEUP_DAYS, &[CalendarStep::Include(makeup_days)])),
        (WORKDAYS, built(WORKDAYS, &workdays)),
    ])
});

fn built(name: &str, steps: &[CalendarStep]) -> Arc<DaySet> {
    let mut days =
        DaySet::compile_steps(name, steps, &BuiltinCalendars).expect("the table names days that exist");
    days.known_until = YEARS.last().map(|year| date(year.year, 12, 31));
    Arc::new(days)
}

/// Days of a year, as `month * 100 + day`.
struct Year {
    year: i16,
    /// Ranges of public holidays, both ends included.
    off: &'static [(i16, i16)],
    /// Make-up days: weekend days that are worked.
    work: &'static [i16],
}

impl Year {
    fn off(&self) -> impl Iterator<Item = DateRange> {
        self.off.iter().map(|(first, last)| DateRange { first: self.day(*first), last: self.day(*last) })
    }

    fn work(&self) -> impl Iterator<Item = DateRange> {
        self.work.iter().map(|day| DateRange { first: self.day(*day), last: self.day(*day) })
    }

    fn day(&self, day: i16) -> Date {
        let part = |n: i16| i8::try_from(n).expect("a month or day has two digits");
        date(self.year, part(day / 100), part(day % 100))
    }
}

/// Table of all known years, in ascending order.
#[rustfmt::skip]
const YEARS: &[Year] = &[
    Year { year: 2004, off: &[(101, 101), (122, 128), (501, 507), (1001, 1007)], work: &[117, 118, 508, 509, 1009, 1010] },
    Year { year: 2005, off: &[(101, 103), (209, 215), (501, 507), (1001, 1007)], work: &[205, 206, 430, 508, 1008, 1009] },
    Year { year: 2006, off: &[(101, 103), (129, 204), (501, 507), (1001, 1007)], work: &[128, 205, 429, 430, 930, 1008, 1230, 1231] },
    Year { year: 2007, off: &[(101, 103), (218, 224), (501, 507), (1001, 1007), (1230, 1231)], work: &[217, 225, 428, 429, 929, 930, 1229] },
    Year { year: 2008, off: &[(101, 101), (206, 212), (404, 406), (501, 503), (607, 609), (913, 915), (929, 1005)], work: &[202, 203, 504, 927, 928] },
    Year { year: 2009, off: &[(101, 103), (125, 131), (404, 406), (501, 503), (528, 530), (1001, 1008)], work: &[104, 124, 201, 531, 927, 1010] },
    Year { year: 2010, off: &[(101, 103), (213, 219), (403, 405), (501, 503), (614, 616), (922, 924), (1001, 1007)], work: &[220, 221, 612, 613, 919, 925, 926, 1009] },
    Year { year: 2011, off: &[(101, 103), (202, 208), (403, 405), (430, 502), (604, 604), (606, 606), (910, 912), (1001, 1007)], work: &[130, 212, 402, 1008, 1009, 1231] },
    Year { year: 2012, off: &[(101, 103), (122, 128), (402, 404), (429, 501), (622, 622), (624, 624), (930, 1007)], work: &[121, 129, 331, 401, 428, 929] },
    Year { year: 2013, off: &[(101, 103), (209, 215), (404, 406), (429, 501), (610, 612), (919, 921), (1001, 1007)], work: &[105, 106, 216, 217, 407, 427, 428, 608, 609, 922, 929, 1012] },
    Year { year: 2014, off: &[(101, 101), (131, 206), (405, 407), (501, 503), (602, 602), (908, 908), (1001, 1007)], work: &[126, 208, 504, 928, 1011] },
    Year { year: 2015, off: &[(101, 103), (218, 224), (405, 406), (501, 501), (620, 620), (622, 622), (903, 904), (927, 927), (1001, 1007)], work: &[104, 215, 228, 906, 1010] },
    Year { year: 2016, off: &[(101, 101), (207, 213), (404, 404), (501, 502), (609, 611), (915, 917), (1001, 1007)], work: &[206, 214, 612, 918, 1008, 1009] },
    Year { year: 2017, off: &[(101, 102), (127, 202), (402, 404), (501, 501), (528, 530), (1001, 1008)], work: &[122, 204, 401, 527, 930] },
    Year { year: 2018, off: &[(101, 101), (215, 221), (405, 407), (429, 501), (618, 618), (924, 924), (1001, 1007), (1230, 1231)], work: &[211, 224, 408, 428, 929, 930, 1229] },
    Year { year: 2019, off: &[(101, 101), (204, 210), (405, 407), (501, 504), (607, 609), (913, 915), (1001, 1007)], work: &[202, 203, 428, 505, 929, 1012] },
    Year { year: 2020, off: &[(101, 101), (124, 202), (404, 406), (501, 505), (625, 627), (1001, 1008)], work: &[119, 426, 509, 628, 927, 1010] },
    Year { year: 2021, off: &[(101, 103), (211, 217), (403, 405), (501, 505), (612, 614), (919, 921), (1001, 1007)], work: &[207, 220, 425, 508, 918, 926, 1009] },
    Year { year: 2022, off: &[(101, 103), (131, 206), (403, 405), (430, 504), (603, 605), (910, 912), (1001, 1007), (1231, 1231)], work: &[129, 130, 402, 424, 507, 1008, 1009] },
    Year { year: 2023, off: &[(101, 102), (121, 127), (405, 405), (429, 503), (622, 624), (929, 1006), (1230, 1231)], work: &[128, 129, 423, 506, 625, 1007, 1008] },
    Year { year: 2024, off: &[(101, 101), (210, 217), (404, 406), (501, 505), (610, 610), (915, 917), (1001, 1007)], work: &[204, 218, 407, 428, 511, 914, 929, 1012] },
    Year { year: 2025, off: &[(101, 101), (128, 204), (404, 406), (501, 505), (531, 602), (1001, 1008)], work: &[126, 208, 427, 928, 1011] },
    Year { year: 2026, off: &[(101, 103), (215, 223), (404, 406), (501, 505), (619, 621), (925, 927), (1001, 1007)], work: &[104, 214, 228, 509, 920, 1010] },
];
