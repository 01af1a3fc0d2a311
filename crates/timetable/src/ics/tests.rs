//! Imports of example events, comparison of recurrences with another library, and imports of arbitrary texts.
//!
//! `told` imports a text for the years 2026 to 2028, and returns the days and the ignored entries, one a
//! line. The example tests compare it with snapshots. `recurrences_match_another_library` compares recurrence
//! rules with `recur.golden`, which was generated with `python-dateutil`.
//!
//! # Invariants
//! - Every event is imported or reported; an event that cannot be interpreted exactly is never imported in
//!   part.
//! - No text makes an import panic.
//! - No imported day is outside the requested years.

use proptest::prelude::*;

use super::*;

fn calendar(events: &str) -> String {
    let lines: Vec<&str> = events.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    format!("BEGIN:VCALENDAR\r\nVERSION:2.0\r\n{}\r\nEND:VCALENDAR\r\n", lines.join("\r\n"))
}

fn event(lines: &str) -> String {
    calendar(&format!("BEGIN:VEVENT\n{lines}\nEND:VEVENT"))
}

/// Returns the days and the ignored entries of an import for 2026 to 2028, one on each line.
fn told(text: &str) -> String {
    match import(text, 2026..=2028) {
        Ok(imported) => {
            let days = imported.days.iter().map(|range| format!("{range}\n"));
            let ignored = imported.ignored.iter().map(|entry| {
                let summary = entry.summary.as_deref().map(|s| format!(" ({s})")).unwrap_or_default();
                format!("ignored line {}{summary}: {}\n", entry.line, entry.reason)
            });
            days.chain(ignored).collect()
        }
        Err(error) => error.to_string(),
    }
}

/// B5.
#[test]
fn whole_day_events_give_their_days_and_dtend_is_exclusive() {
    insta::assert_snapshot!(told(&calendar("
        BEGIN:VEVENT
        SUMMARY:National Day
        DTSTART;VALUE=DATE:20261001
        DTEND;VALUE=DATE:20261008
        END:VEVENT
        BEGIN:VEVENT
        DTSTART;VALUE=DATE:20261008
        END:VEVENT
        BEGIN:VEVENT
        DTSTART;VALUE=DATE:20270101
        DURATION:P3D
        END:VEVENT
        BEGIN:VEVENT
        DTSTART;VALUE=DATE:20270501
        DURATION:P1W
        BEGIN:VALARM
        DTSTART:19990101T000000
        END:VALARM
        END:VEVENT
    ")), @"
    2026-10-01..2026-10-08
    2027-01-01..2027-01-03
    2027-05-01..2027-05-07
    ");
}

/// B5.
#[test]
fn times_count_by_their_local_dates() {
    insta::assert_snapshot!(told(&calendar("
        BEGIN:VEVENT
        DTSTART;TZID=Asia/Shanghai:20260301T220000
        DTEND;TZID=Asia/Shanghai:20260302T020000
        END:VEVENT
        BEGIN:VEVENT
        DTSTART;TZID=Asia/Shanghai:20260401T220000
        DTEND;TZID=Asia/Shanghai:20260402T000000
        END:VEVENT
        BEGIN:VEVENT
        DTSTART:20260501T220000
        DURATION:PT26H
        END:VEVENT
        BEGIN:VEVENT
        DTSTART;TZID=Asia/Shanghai:20260601T070000
        RRULE:FREQ=DAILY;UNTIL=20260603T230000Z
        EXDATE:20260601T230000Z
        END:VEVENT
    ")), @"
    2026-03-01..2026-03-02
    2026-04-01
    2026-05-01..2026-05-02
    2026-06-01
    2026-06-03..2026-06-04
    ");
}

/// B5.
#[test]
fn exdate_and_rdate_change_single_days() {
    insta::assert_snapshot!(told(&calendar("
        BEGIN:VEVENT
        UID:a
        DTSTART;VALUE=DATE:20200706
        DTEND;VALUE=DATE:20200708
        RRULE:FREQ=YEARLY;BYMONTH=7;BYDAY=1MO
        EXDATE;VALUE=DATE:20270705
        RDATE;VALUE=DATE:20260101,20260104
        END:VEVENT
        BEGIN:VEVENT
        UID:a
        RECURRENCE-ID;VALUE=DATE:20280703
        DTSTART;VALUE=DATE:20280801
        END:VEVENT
    ")), @"
    2026-01-01..2026-01-02
    2026-01-04..2026-01-05
    2026-07-06..2026-07-07
    2028-08-01
    ");
}

/// B5.
#[test]
fn folded_lines_quoted_parameters_and_any_case_are_read() {
    let text = "begin:vcalendar\nBEGIN:vevent\nsummary;ALTREP=\"http://x:1;y\":Neu\n jahr\\, \n\tfrei\n\
                dtstart;value=\"DATE\":2026\n 0101\nstatus:cancelled\nEND:vevent\n";
    insta::assert_snapshot!(told(text), @"ignored line 2 (Neujahr, frei): is cancelled");
}

/// B5. Each event that cannot be interpreted exactly is reported with its line.
#[test]
fn ignored_events_are_reported_with_their_reason() {
    let broken = [
        "SUMMARY:no start",
        "DTSTART:tomorrow",
        "DTSTART;VALUE=DATE:20260230",
        "DTSTART:20260101T250000",
        "DTSTART:20260101T090000Z",
        "DTSTART;TZID=Mars/Olympus:20260101T090000\nEXDATE:20260102T090000Z",
        "DTSTART;VALUE=DATE:20260102\nDTEND;VALUE=DATE:20260102",
        "DTSTART;VALUE=DATE:20260102\nDTEND:20260103T000000",
        "DTSTART;TZID=Asia/Tokyo:20260102T090000\nDTEND;TZID=Asia/Seoul:20260102T100000",
        "DTSTART;VALUE=DATE:20260102\nDURATION:PT5H",
        "DTSTART;VALUE=DATE:20260102\nDURATION:P1D\nDTEND;VALUE=DATE:20260103",
        "DTSTART;VALUE=DATE:20260102\nDTSTART;VALUE=DATE:20260103",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=HOURLY",
        "DTSTART;VALUE=DATE:20260102\nRRULE:COUNT=2",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=DAILY;COUNT=2;UNTIL=20270101",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=DAILY;INTERVAL=0",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=DAILY;COUNT=2;COUNT=3",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=YEARLY;BYWEEKNO=20",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=WEEKLY;BYDAY=1MO",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=WEEKLY;BYMONTHDAY=2",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=WEEKLY;BYSETPOS=1",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=WEEKLY;BYDAY=MO",
        "DTSTART;VALUE=DATE:20260102\nRRULE:FREQ=WEEKLY;BYDAY=日本",
        "DTSTART;VALUE=DATE:20260102\nEXRULE:FREQ=WEEKLY",
        "DTSTART;VALUE=DATE:20260102\nRDATE;VALUE=PERIOD:20260102T000000/PT1H",
        "DTSTART;VALUE=DATE:20190102",
    ];
    let mut told_all: String = broken.iter().map(|lines| told(&event(lines))).collect();
    told_all += &told(&calendar("BEGIN:VTODO\nSUMMARY:wash up\nEND:VTODO\nBEGIN:VEVENT\nDTSTART:20260101"));
    insta::assert_snapshot!(told_all, @"
    ignored line 3 (no start): has no DTSTART
    ignored line 3: line 4: DTSTART `tomorrow` is not a date or time: expected `20261001` or `20261001T090000`
    ignored line 3: line 4: DTSTART `20260230` is not a date or time: expected `20261001` or `20261001T090000`
    ignored line 3: line 4: DTSTART `20260101T250000` is not a date or time: expected `20261001` or `20261001T090000`
    ignored line 3: line 4: DTSTART is in UTC, so its day depends on the time zone: expected a date, or a time with TZID
    ignored line 3: line 5: EXDATE is in UTC, and the time zone `Mars/Olympus` is unknown: expected an IANA name
    ignored line 3: line 5: DTEND is not after DTSTART
    ignored line 3: line 5: DTEND has a different type than DTSTART: expected two dates, or two times
    ignored line 3: line 5: DTEND has another time zone than DTSTART
    ignored line 3: line 5: DURATION does not fit DTSTART: expected a duration such as `P1D`
    ignored line 3: line 6: DTEND cannot be combined with DURATION
    ignored line 3: line 5: DTSTART is repeated: expected it once
    ignored line 3: line 5: RRULE has `FREQ=HOURLY`, which is invalid or not supported
    ignored line 3: line 5: RRULE has no FREQ
    ignored line 3: line 5: RRULE has both COUNT and UNTIL
    ignored line 3: line 5: RRULE has `INTERVAL=0`, which is invalid or not supported
    ignored line 3: line 5: RRULE has the repeated part `COUNT=3`
    ignored line 3: line 5: RRULE has `BYWEEKNO=20`, which is not supported
    ignored line 3: line 5: RRULE has numbered weekdays, which require FREQ=MONTHLY or FREQ=YEARLY
    ignored line 3: line 5: RRULE has BYMONTHDAY, which is not allowed with FREQ=WEEKLY
    ignored line 3: line 5: RRULE has BYSETPOS without another BY part
    ignored line 3: line 5: RRULE does not include the first day of the event (DTSTART)
    ignored line 3: line 5: RRULE has `BYDAY=日本`, which is invalid or not supported
    ignored line 3: line 5: EXRULE is not supported: expected EXDATE
    ignored line 3: line 5: RDATE `20260102T000000/PT1H` is not a date or time: expected `20261001` or `20261001T090000`
    ignored line 3: has no day from 2026 to 2028
    ignored line 3 (wash up): is a VTODO: expected a VEVENT
    ignored line 6: has no end: expected a line `END:VEVENT`
    ");
}

/// B5.
#[test]
fn invalid_or_too_large_imports_are_rejected() {
    assert_eq!(import("DTSTART:20260101", 2026..=2026), Err(IcsError::NotICalendar));
    let long = "x".repeat(limits::ICALENDAR_BYTES_MAX + 1);
    assert_eq!(import(&long, 2026..=2026), Err(IcsError::TooLarge { bytes: long.len() }));
    let many = "BEGIN:VEVENT\nEND:VEVENT\n".repeat(limits::ICALENDAR_EVENTS_MAX + 1);
    assert_eq!(import(&many, 2026..=2026), Err(IcsError::TooManyEvents { line: 40_001 }));
    assert_eq!(
        import("BEGIN:VCALENDAR", RangeInclusive::new(2027, 2026)),
        Err(IcsError::Years { first: 2027, last: 2026 })
    );
    assert!(matches!(import("BEGIN:VCALENDAR", 1000..=3000), Err(IcsError::Years { .. })));
    let daily = "BEGIN:VEVENT\nDTSTART;VALUE=DATE:20000101\nRRULE:FREQ=DAILY\nEND:VEVENT\n".repeat(1_000);
    let refused = import(&format!("BEGIN:VCALENDAR\n{daily}"), 2000..=2199).unwrap_err();
    assert!(matches!(refused, IcsError::TooMuch { .. }), "{refused}");
}

/// B5. Compares the occurrences with another library, by their number, their sum and the first ones.
#[test]
fn recurrences_match_another_library() {
    let mut compared = 0;
    for line in include_str!("recur.golden").lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let text = event(&format!("DTSTART;VALUE=DATE:{}\nRRULE:{}", words[0], words[1]));
        let imported = import(&text, 1980..=2045).unwrap();
        assert_eq!(imported.ignored, [], "{line}");
        let days: Vec<Date> = imported
            .days
            .iter()
            .flat_map(|range| range.first.series(jiff::ToSpan::day(1)).take_while(|day| *day <= range.last))
            .collect();
        let first: Vec<String> = days.iter().take(6).map(|day| day.strftime("%Y%m%d").to_string()).collect();
        let sum: i64 = days.iter().map(|day| day.duration_since(date(1, 1, 1)).as_hours() / 24 + 1).sum();
        assert_eq!(days.len().to_string(), words[2], "{line}");
        assert_eq!(sum.to_string(), words[3], "{line}");
        assert_eq!(first, words[4..], "{line}");
        compared += 1;
    }
    assert_eq!(compared, 114);
}

/// B5.
#[test]
fn an_import_becomes_a_step_of_a_calendar() {
    let imported =
        import(&event("DTSTART;VALUE=DATE:20261001\nDTEND;VALUE=DATE:20261003"), 2026..=2026).unwrap();
    assert_eq!(imported.events, 1);
    let days = vec![DateRange { first: date(2026, 10, 1), last: date(2026, 10, 2) }];
    assert_eq!(imported.into_step(), Some(CalendarStep::Include(Days::Dates(days))));
    assert_eq!(import("BEGIN:VCALENDAR", 2026..=2026).unwrap().into_step(), None);
}

fn some_line() -> impl Strategy<Value = String> {
    let rule = "FREQ=(YEARLY|MONTHLY|WEEKLY|DAILY)(;(INTERVAL=[0-9]{1,9}|COUNT=[0-9]{1,9}|UNTIL=[0-9]{8}|BYMONTH=[0-9]{1,2}|BYMONTHDAY=-?[0-9]{1,2}|BYDAY=-?[0-9]?(MO|SU)|BYSETPOS=-?[0-9]|WKST=SU)){0,4}";
    prop_oneof![
        4 => "DTSTART(;VALUE=DATE|;TZID=Asia/Tokyo|):[0-9]{8}(T[0-2][0-9][0-5][0-9]00Z?)?",
        2 => "DTSTART;VALUE=DATE:(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|1[0-9]|2[0-8])",
        1 => "DTEND(;VALUE=DATE|):(19|20)[0-9]{2}(0[1-9]|1[0-2])(0[1-9]|1[0-9]|2[0-8])(T000000)?",
        1 => "DURATION:[+-]?P[0-9]{0,7}[WDTHMS]?(T[0-9]{1,7}[HMS])?",
        3 => rule.prop_map(|rule| format!("RRULE:{rule}")),
        1 => "(EXDATE|RDATE|RECURRENCE-ID):[0-9]{8},?[0-9]{0,8}",
        1 => "UID:[ab]",
        1 => "(BEGIN|END):(VEVENT|VALARM|VTODO)",
        1 => any::<String>(),
    ]
}

proptest! {
    /// B5.
    #[test]
    fn any_text_ends_in_a_result(text in any::<String>()) {
        let _ = import(&text, 2000..=2040);
        let _ = import(&format!("BEGIN:VCALENDAR\nBEGIN:VEVENT\n{text}\nEND:VEVENT"), 2000..=2040);
    }

    /// B5. Random events: at least one entry is imported or reported, and no day is outside the requested years.
    #[test]
    fn every_event_is_imported_or_reported(events in prop::collection::vec(prop::collection::vec(some_line(), 1..5), 1..4)) {
        let lines: Vec<String> = events.into_iter().flat_map(|lines| {
            [vec!["BEGIN:VEVENT".to_owned()], lines, vec!["END:VEVENT".to_owned()]].concat()
        }).collect();
        let imported = import(&calendar(&lines.join("\n")), 2000..=2040).unwrap();
        prop_assert!(imported.events + imported.ignored.len() >= 1);
        for pair in imported.days.windows(2) {
            prop_assert!(pair[0].last.tomorrow().unwrap() < pair[1].first);
        }
        for range in &imported.days {
            prop_assert!(range.first <= range.last);
            prop_assert!(range.first >= date(2000, 1, 1) && range.last <= date(2040, 12, 31));
        }
    }
}

/// A rule without an end has occurrences after the requested years.
#[test]
fn recurrences_after_the_requested_years_are_reported() {
    let event = |rule: &str| {
        let text = format!(
            "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART;VALUE=DATE:20261126\r\nRRULE:{rule}\r\nEND:VEVENT\r\n\
             END:VCALENDAR\r\n"
        );
        import(&text, 2016..=2036).unwrap().cut_after
    };
    assert_eq!(event("FREQ=YEARLY;BYMONTH=11;BYDAY=4TH"), Some(date(2036, 12, 31)));
    assert_eq!(event("FREQ=YEARLY;UNTIL=20401126"), Some(date(2036, 12, 31)));
    assert_eq!(event("FREQ=YEARLY;UNTIL=20301126"), None);
    assert_eq!(event("FREQ=YEARLY;COUNT=3"), None);
}
