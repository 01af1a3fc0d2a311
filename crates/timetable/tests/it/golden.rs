//! Comparison with another implementation of crontab: the golden file contains the times that `cronsim` 2.8 (PyPI)
//! returns for expressions around clock changes.

use model::Timestamp;
use timetable::Next;

use crate::common::{at, compile, cron};

/// B1, H5.
#[test]
fn crontab_expressions_fire_as_cronsim_says() {
    let mut wrong = Vec::new();
    let mut cases = 0;
    for line in include_str!("../golden/cronsim.txt").lines().filter(|line| !line.starts_with('#')) {
        let [expression, zone, start, minutes] = line.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{line}")
        };
        let timetable = compile(&cron(expression, zone));
        let mut last = at(start);
        let mut found = Vec::new();
        for _ in minutes.split(' ') {
            let Next::At(next) = timetable.next(last) else { break };
            found.push((next.since(last).as_millis() / 60_000).to_string());
            last = Timestamp::from_micros(next.as_micros());
        }
        if found.join(" ") != minutes {
            wrong.push(format!("{line}\n   found {}", found.join(" ")));
        }
        cases += 1;
    }
    assert!(cases > 500, "the golden file has {cases} cases only");
    assert!(wrong.is_empty(), "{} of {cases} differ:\n{}", wrong.len(), wrong.join("\n"));
}
