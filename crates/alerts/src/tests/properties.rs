//! Invariants for any order of events, restarts and failed deliveries.

use std::collections::BTreeMap;

use model::JobStatus;
use model::api::AlertStatus;
use proptest::prelude::*;
use serde_json::json;

use super::*;

#[derive(Debug, Clone, Copy)]
enum Step {
    Ends { name: u8, succeeds: bool },
    Pass { minutes: u8 },
    Restart,
    Channel { accepts: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..4u8, any::<bool>()).prop_map(|(name, succeeds)| Step::Ends { name, succeeds }),
        2 => (0..90u8).prop_map(|minutes| Step::Pass { minutes }),
        1 => Just(Step::Restart),
        1 => any::<bool>().prop_map(|accepts| Step::Channel { accepts }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// H3, D5. Each object whose last job failed has one open alert, and no other has one. Once channels accept messages,
    /// the last message about each object tells its state. A restart between any two writes changes nothing.
    #[test]
    fn the_last_message_about_each_object_tells_its_state(steps in prop::collection::vec(step(), 1..60)) {
        let mut t = Scene::new(&[json!({"when": {"job_failed": {}}, "repeat_every": "1m"})]);
        let mut last: BTreeMap<String, bool> = BTreeMap::new();
        for (id, step) in (0..).zip(steps) {
            match step {
                Step::Ends { name, succeeds } => {
                    let name = format!("job-{name}");
                    t.ends(id, &name, if succeeds { JobStatus::Succeeded } else { JobStatus::Failed });
                    last.insert(name, succeeds);
                }
                Step::Pass { minutes } => t.pass(super::minutes(minutes.into())),
                Step::Restart => t.restart(),
                Step::Channel { accepts } => t.accepts = accepts,
            }
            let filter = AlertFilter { statuses: [AlertStatus::Firing].into(), ..AlertFilter::default() };
            let open = t.alerts.alerts(t.now, |_| true, &filter, 100).items;
            let mut open: Vec<_> = open.into_iter().map(|alert| alert.subject.name).collect();
            open.sort();
            let failed = last.iter().filter(|(_, succeeded)| !**succeeded).map(|(name, _)| name.clone());
            prop_assert_eq!(open, failed.collect::<Vec<_>>());
        }
        t.accepts = true;
        t.pass(HOUR);
        let mut told: BTreeMap<String, bool> = BTreeMap::new();
        for item in t.sent().iter().flat_map(|sent| sent.trim_start_matches("ops: ").split(", ")) {
            let name = item.split(' ').next().unwrap_or_default();
            told.insert(name.to_owned(), item.ends_with("resolved"));
        }
        for (name, succeeded) in last {
            let expected = if succeeded { told.get(&name).copied().unwrap_or(true) } else { false };
            prop_assert_eq!(told.get(&name).copied().unwrap_or(true), expected, "{}", name);
        }
    }

    /// A restart after any write and a repetition of the events from the stored position give the same rows.
    #[test]
    fn events_are_evaluated_once_across_restarts(names in prop::collection::vec(0..3u8, 1..30), cut in 0..30usize) {
        let run = |cut: Option<usize>| {
            let mut t = Scene::new(&[json!({"when": {"job_failed": {"in_a_row": 2}}, "notify": []})]);
            for (id, name) in names.iter().enumerate() {
                let job = t.job(id as u128, &format!("job-{name}"));
                t.to(job, JobStatus::Failed);
                if cut == Some(id) {
                    // The rows of this event are lost with the server, and the event comes again.
                    t.restart();
                    t.position -= 1;
                    t.to(job, JobStatus::Failed);
                    // An event that is already evaluated comes again.
                    t.position -= 1;
                    t.to(job, JobStatus::Failed);
                }
                t.settle();
            }
            t.rows
        };
        prop_assert_eq!(run(None), run(Some(cut)));
    }
}
