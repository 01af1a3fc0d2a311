//! What-if changes of a plan.

use forecast::{WhatIf, WhatIfError};
use model::{Bytes, Millicores};

use crate::scenario::{Build as _, hours, minutes, schedule, worker};

#[test]
fn workers_are_added_scaled_and_removed() {
    let mut plan = hours(1).worker("a", 2).worker("b", 4);
    plan.change(&WhatIf::Workers(5)).unwrap();
    let names: Vec<_> = plan.workers.iter().map(|w| (w.name.as_str(), w.capacity.cpu.0)).collect();
    assert_eq!(names, [("a", 2_000), ("b", 4_000), ("a-2", 2_000), ("b-2", 4_000), ("a-3", 2_000)]);
    plan.change(&WhatIf::Workers(2)).unwrap();
    plan.change(&WhatIf::ScaleWorker { name: "b".into(), factor: 1.5 }).unwrap();
    let capacity = &plan.workers[1].capacity;
    assert_eq!((capacity.cpu, capacity.memory, capacity.slots), (Millicores(6_000), Bytes(6 << 30), 150));
    plan.change(&WhatIf::WithoutWorker("a".into())).unwrap();
    plan.change(&WhatIf::AddWorker(Box::new(worker("b", 1)))).unwrap();
    let names: Vec<_> = plan.workers.iter().map(|w| w.name.as_str()).collect();
    assert_eq!(names, ["b", "b-2"]);
    plan.change(&WhatIf::Slower(1.5)).unwrap();
    assert_eq!(plan.options.slower, 1.5);
}

#[test]
fn an_impossible_change_is_rejected_without_effect() {
    let mut plan = hours(1).worker("a", 2);
    let refused = plan.change(&WhatIf::WithoutWorker("x".into())).unwrap_err();
    assert_eq!(refused.to_string(), "worker `x` does not exist: expected `a`");
    let scale = WhatIf::ScaleWorker { name: "a".into(), factor: f64::NAN };
    assert!(matches!(plan.change(&scale), Err(WhatIfError::Factor { .. })));
    assert!(matches!(plan.change(&WhatIf::Workers(1_000_000)), Err(WhatIfError::TooMany { .. })));
    plan.change(&WhatIf::Workers(0)).unwrap();
    assert!(matches!(plan.change(&WhatIf::Workers(1)), Err(WhatIfError::NothingToCopy { .. })));
}

#[test]
fn a_larger_worker_resolves_an_overload() {
    let plan = hours(2).worker("w1", 1).with(schedule("a", "0 * * * *"), minutes(10));
    let plan = plan.with(schedule("b", "0 * * * *"), minutes(10));
    assert_eq!(plan.answer().overloads.len(), 2);
    let mut bigger = plan.clone();
    bigger.change(&WhatIf::ScaleWorker { name: "w1".into(), factor: 2.0 }).unwrap();
    assert_eq!(bigger.answer().overloads.len(), 0);
    let mut slower = plan;
    slower.change(&WhatIf::Slower(3.0)).unwrap();
    assert_eq!(slower.answer().overloads[0].longest.by, minutes(30));
}
