//! The picture stands alone, and whatever names there are.

use forecast::picture;
use jiff::tz::TimeZone;

use crate::scenario::{Build as _, hours, minutes, schedule};

#[test]
fn a_picture_shows_what_the_answer_tells() {
    let mut plan = hours(24).worker("w<1>", 1).worker("w2", 1);
    for name in ["a", "b & c", "d", "e"] {
        plan = plan.with(schedule(name, "0 */6 * * *"), minutes(20));
    }
    let answer = plan.answer();
    let zone = TimeZone::get("Asia/Shanghai").unwrap();
    let drawn = picture(&answer, &zone);
    assert_eq!(drawn, picture(&answer, &zone));
    for shown in [
        "Forecast for Sat 21 Nov 08:00 – Sun 22 Nov 08:00",
        "16 firings of 4 schedules",
        "w&lt;1&gt;",
        "too little CPU",
    ] {
        assert!(drawn.contains(shown), "`{shown}` is not in {drawn}");
    }
    for unwanted in ["<script", "href", "url(", "w<1>", "NaN", "inf"] {
        assert!(!drawn.contains(unwanted), "`{unwanted}` is in {drawn}");
    }
    let open = drawn.matches("<rect").count();
    assert_eq!(
        open,
        drawn.matches("</rect>").count() + drawn.matches("/>").count()
            - drawn.matches("<line").count()
            - drawn.matches("<path").count()
    );
}

#[test]
fn a_picture_of_nothing_is_a_picture() {
    let drawn = picture(&hours(1).answer(), &TimeZone::UTC);
    assert!(drawn.contains("never overloaded") && !drawn.contains("NaN"), "{drawn}");
}
